"""What is wrong with a task, and the remedy: pure, from its row, what stands on the broker, and the time (rules P12, P14)."""

from __future__ import annotations

from dataclasses import dataclass

from skillstream.closing import Verdict, attempts_exhausted, interrupted
from skillstream_schemas.errors import FailureCode
from skillstream_schemas.event import HandedBack
from skillstream_schemas.limits import DEFAULT_ATTEMPTS
from skillstream_schemas.request import OnRetry
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .projection import Notice, project
from .sighting import Sighting
from .store import TaskRecord

ORPHAN_AFTER_MS = 30_000
"""A submission without a job is another's between his two steps for so long."""
EXPIRY_MARGIN_MS = 3_600_000
"""A task that is not final so long before its stream would go is ended."""
_TAKEN = Verdict(TaskState.FAILED, "another task had this id before", FailureCode.TASK_ID_TAKEN)


@dataclass(frozen=True, slots=True)
class Project:
    """The final is on the stream but not in the database, or its job was left."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """The task waits for a worker without a job on the queue."""

    def __str__(self) -> str:
        return "it waits without a job on the queue and is enqueued"


@dataclass(frozen=True, slots=True)
class Close:
    """Nobody ends the task: end it from outside."""

    verdict: Verdict

    def __str__(self) -> str:
        error = f", {self.verdict.error}" if self.verdict.error else ""
        why = f": {self.verdict.reason}" if self.verdict.reason else ""
        return f"nobody ends it, it is closed as {self.verdict.state.value}{error}{why}"


@dataclass(frozen=True, slots=True)
class CloseAsRecorded:
    """The broker went back behind a final that the database has: put it there again."""

    def __str__(self) -> str:
        return "the broker lost its end, which is written again as it was recorded"


@dataclass(frozen=True, slots=True)
class EndLost:
    """The stream is gone before its final came."""

    def __str__(self) -> str:
        return "its stream is gone before its final came: it ends as failed"


@dataclass(frozen=True, slots=True)
class Settle:
    """The job of an ended task whose stream is gone was left."""

    def __str__(self) -> str:
        return "its job was left on the queue and is taken off"


Remedy = Project | Enqueue | Close | CloseAsRecorded | EndLost | Settle


def diagnose(record: TaskRecord, seen: Sighting, now_ms: int, settings: Settings) -> Remedy | None:
    """The remedy for a task; None where all is well or somebody else is at it."""
    if seen.ends.problem is not None:
        return None
    first, top = seen.ends.first, seen.ends.top
    if first is not None and top is not None and not record.is_task_of(project(Notice(record.id), first, top).record):
        # an older task that is not final is lost: it ends as such once this stream is gone
        return (Project() if seen.queued else None) if top.is_final else Close(_TAKEN)
    if record.state.is_final:
        if top is not None and not top.is_final:
            return CloseAsRecorded()
        if seen.queued:
            return Settle() if top is None else Project()
        return None
    if top is None:
        return EndLost()
    if top.is_final:
        return Project()
    verdict = _verdict(record, seen, now_ms, settings)
    if verdict is not None:
        return Close(verdict)
    return Enqueue() if _is_orphan(record, seen, now_ms) else None


def _verdict(record: TaskRecord, seen: Sighting, now_ms: int, settings: Settings) -> Verdict | None:
    if seen.stream_ttl_ms is not None and seen.stream_ttl_ms < EXPIRY_MARGIN_MS:
        return Verdict(TaskState.FAILED, "the task was not done before its retention ends", FailureCode.EXPIRED)
    if seen.owned:
        return None  # its worker sees to deadline and cancellation
    patience_ms = (settings.lease_s + settings.grace_s) * 1000
    if record.cancel_requested_at is not None and now_ms - record.cancel_requested_at > patience_ms:
        return Verdict(TaskState.CANCELED, seen.cancel_reason or "")
    if record.deadline is not None and now_ms > record.deadline:
        return Verdict(TaskState.FAILED, "the deadline passed before a worker was done", FailureCode.DEADLINE_EXCEEDED)
    if record.request is None and now_ms - record.submitted_at > ORPHAN_AFTER_MS:
        return Verdict(TaskState.FAILED, "the request cannot be read", FailureCode.MALFORMED_REQUEST)
    return _verdict_of_opener(seen)


def _verdict_of_opener(seen: Sighting) -> Verdict | None:
    """How the next opener would end a task whose attempt was left; it need not come (rule P11)."""
    first, top, opening = seen.ends.first, seen.ends.top, seen.opening
    if first is None or top is None or opening is None or seen.cancel_reason is not None:
        return None
    worker, handed_back = opening.text("worker"), top.text("handed_back")
    if first.text("on_retry") == OnRetry.FAIL and handed_back != HandedBack.ELSEWHERE:
        return interrupted(worker)
    strikes, max_attempts = opening.number("strikes", 0), first.number("max_attempts", DEFAULT_ATTEMPTS)
    is_free = handed_back in (HandedBack.DRAIN, HandedBack.ELSEWHERE) and strikes > 0
    return attempts_exhausted(max_attempts, worker) if strikes + (not is_free) > max_attempts else None


def _is_orphan(record: TaskRecord, seen: Sighting, now_ms: int) -> bool:
    if seen.queued and seen.has_job:
        return False
    top = seen.ends.top
    never_opened = top is not None and top.id.startswith("0-")
    return not never_opened or now_ms - record.submitted_at > ORPHAN_AFTER_MS
