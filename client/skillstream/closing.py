"""Ending a task from outside its attempt (rules P8, P9): what canceller, opener and router do alike."""

from __future__ import annotations

from dataclasses import dataclass

from skillstream_schemas.errors import FailureCode, UnknownTask
from skillstream_schemas.event import FinalEvent, agent_metadata, event_from_fields
from skillstream_schemas.ids import START
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.state import TaskState

from .broker import Broker, Ending
from .transcript import Transcript


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a task is to end: `error` is a failure code where `state` is failed, `reason` a sentence for people."""

    state: TaskState
    reason: str
    error: str | None = None

    def final(self, agent: str, text: str = "") -> FinalEvent:
        """The final of a task that ends so; the script that writes it decides its id and time."""
        return FinalEvent(
            id=START, at=0, state=self.state, text=text, metadata=agent_metadata(agent),
            error=self.error, reason=self.reason, chunks=0,
        )  # fmt: skip


def attempts_exhausted(max_attempts: int, last_worker: str) -> Verdict:
    """The end of a task whose attempts are used up (rule P11)."""
    reason = f"{max_attempts} attempts were made; the last worker was {last_worker}"
    return Verdict(TaskState.FAILED, reason, FailureCode.ATTEMPTS_EXHAUSTED)


def interrupted(last_worker: str) -> Verdict:
    """The end of a task whose attempt was left and whose skill is never run twice."""
    reason = f"the attempt of worker {last_worker} ended early and the skill is never run twice"
    return Verdict(TaskState.FAILED, reason, FailureCode.INTERRUPTED)


async def read_transcript(broker: Broker, task_id: str) -> tuple[TaskRequest, Transcript] | None:
    """Reads a whole stream: the request and what came of it; None where there is no stream."""
    transcript = Transcript(task_id)
    request: TaskRequest | None = None
    while entries := await broker.read(task_id, transcript.cursor):
        for event_id, fields in entries:
            event = event_from_fields(event_id, fields)
            transcript.take(event)
            if event.type == "status" and event.request is not None:
                request = event.request
    return None if request is None else (request, transcript)


async def close_from_outside(broker: Broker, task_id: str, verdict: Verdict, closer: str) -> FinalEvent:
    """Ends a task with what it has said so far; returns the final that stands there, this one or another.

    The job is not settled. Raises UnknownTask where there is no stream.
    """
    while True:
        known = await read_transcript(broker, task_id)
        if known is None:
            raise UnknownTask(f"task {task_id}")
        request, transcript = known
        if transcript.final is not None:
            return transcript.final
        final = verdict.final(request.agent, transcript.text)
        ended = await broker.close_task(task_id, Ending(final, transcript.cursor, transcript.keep), closer)
        if ended is not None:
            return ended
