"""What a claimed job asks for, whoever put it on the queue."""

from __future__ import annotations

from typing import NamedTuple

from skillstream_schemas.errors import FailureCode, InvalidRequest, MalformedJob, MessageTooLarge
from skillstream_schemas.job import Job, is_stub, read_job
from skillstream_schemas.keys import RUN_SKILL
from skillstream_schemas.limits import Limits
from skillstream_schemas.request import TaskRequest

from .agent import Agent
from .broker import ClaimedJob


class JobReading(NamedTuple):
    """A job as it was read.

    `request` goes on the stream where the job brings it: that of a stock client, or a stand-in where the job cannot
    be run, so that its end is recorded; None for a job of ours. `failure` is why the stand-in cannot be run.
    """

    job: Job | None
    request: TaskRequest | None
    failure: tuple[FailureCode, str] | None = None


_OURS = JobReading(None, None)  # the truth stands on the stream


def read_claimed(agent: Agent, claimed: ClaimedJob, limits: Limits) -> JobReading:
    """Reads the payload of a claimed job; never raises: what cannot be read is a failure in the answer."""
    if claimed.payload is None or is_stub(claimed.payload):
        return _OURS
    try:
        job = read_job(claimed.payload)
    except MalformedJob as error:
        return JobReading(None, _stand_in(agent, "unknown"), (FailureCode.MALFORMED_JOB, error.message))
    if job.function != RUN_SKILL:
        reason = f"the job calls {job.function[:100]!r}; jobs of a skill call {RUN_SKILL!r}"
        return JobReading(job, _stand_in(agent, job.function), (FailureCode.UNKNOWN_FUNCTION, reason))
    if job.request is None:
        return JobReading(job, None)
    try:
        return JobReading(job, stock_request(agent, job.request, limits))
    except MessageTooLarge as error:
        code, reason = FailureCode.MESSAGE_TOO_LARGE, error.message
    except InvalidRequest as error:
        code, reason = FailureCode.MALFORMED_REQUEST, error.message
    return JobReading(job, _stand_in(agent, str(job.request.get("skill", "unknown"))), (code, reason))


def stock_request(agent: Agent, fields: dict[str, object], limits: Limits) -> TaskRequest:
    """The request of a stock client, with what counts from the agent's own registration: attempts, price, retry.

    Raises InvalidRequest or MessageTooLarge.
    """
    if fields.get("agent", agent.name) != agent.name:
        raise InvalidRequest("the request names another agent than the queue")
    values = {**fields, "agent": agent.name}
    skill = agent.skills.get(str(fields.get("skill")))
    if skill is not None:
        values |= {"max_attempts": skill.max_attempts, "price_micros": skill.price_micros, "on_retry": skill.on_retry}
    return TaskRequest.build(values, limits)


def _stand_in(agent: Agent, skill: str) -> TaskRequest:
    readable = skill.encode(errors="replace").decode()[:100]
    return TaskRequest(agent=agent.name, skill=readable or "unknown", message="")
