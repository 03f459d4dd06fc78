"""Submissions as the client's seam takes them."""

from __future__ import annotations

from skillstream.broker import Broker, Submission, flat
from skillstream.scripts import SUBMIT
from skillstream_schemas.request import TaskRequest

_TTL_MS = 7 * 86_400_000


def submission_of(task_id: str, request: TaskRequest, *, delay_ms: int = 0) -> Submission:
    """The submission of a request under an id."""
    return Submission(request.agent, task_id, flat(request.to_fields()), delay_ms)


async def submit_half(broker: Broker, submission: Submission) -> None:
    """The first step of a submission alone, as a client leaves it that dies behind it."""
    keys = [broker.keys.inbox_of(submission.task_id), broker.keys.events(submission.task_id)]
    fields = submission.fields
    assert await broker.pipeline.run(SUBMIT, keys, [submission.task_id, _TTL_MS, len(fields), *fields]) == [[b"new"]]
