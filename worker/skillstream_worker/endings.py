"""How what happened to a performance ends its attempt: pure decisions, no I/O."""

from __future__ import annotations

from typing import NamedTuple

import arq

from skillstream.closing import Verdict, attempts_exhausted, interrupted
from skillstream_schemas.errors import EventTooLarge, FailureCode, MalformedEntry, OutputTooLarge, StreamGap, Unpublishable
from skillstream_schemas.event import HandedBack
from skillstream_schemas.request import OnRetry, TaskRequest
from skillstream_schemas.state import TaskState

from .agent import Agent
from .broker import ClaimedJob
from .openings import CloseCause, MustClose, Opened
from .outcome import Abandon, End, Ending, HandBack, StopCause
from .reading import JobReading
from .retry import Retry, backoff_s
from .skill import Skill

_CLAIMS_BEYOND_ATTEMPTS = 20
_REASON_CHARS = 2000
_FIRST_ELSEWHERE_S = 0.1
_LONGEST_ELSEWHERE_S = 5.0


def refusal(agent: Agent, claimed: ClaimedJob, reading: JobReading, opened: Opened, now_ms: int) -> End | None:
    """Why an opened attempt ends before its skill runs, None where it is to run."""
    request = opened.request
    if opened.cancel_reason is not None:
        return End(TaskState.CANCELED, reason=opened.cancel_reason)
    if reading.failure is not None and request == reading.request:
        return End.failed(*reading.failure)
    if claimed.claims > request.max_attempts + _CLAIMS_BEYOND_ATTEMPTS:
        return End.failed(FailureCode.UNSTARTABLE, f"the job was claimed {claimed.claims} times")
    if request.deadline is not None and now_ms >= request.deadline:
        return End.failed(FailureCode.DEADLINE_EXCEEDED, "the deadline passed before the attempt began")
    if request.skill not in agent.skills:
        known = ", ".join(sorted(agent.skills)) or "none"
        reason = f"agent {agent.name!r} has no skill {request.skill[:100]!r}; its skills: {known}"
        return End.failed(FailureCode.UNKNOWN_SKILL, reason)
    return None


def elsewhere(claims: int) -> HandBack:
    """The ending of an attempt whose skill another worker has; the more claims, the longer others are waited for.

    The bound on claims (rule P11) ends what nobody takes.
    """
    return HandBack(HandedBack.ELSEWHERE, min(_FIRST_ELSEWHERE_S * 2 ** min(claims - 1, 16), _LONGEST_ELSEWHERE_S))


def verdict_of(closing: MustClose) -> Verdict:
    """How a task ends that is closed instead of run again."""
    match closing.cause:
        case CloseCause.CANCELED:
            return Verdict(TaskState.CANCELED, closing.detail)
        case CloseCause.EXHAUSTED:
            return attempts_exhausted(closing.request.max_attempts, closing.detail)
        case CloseCause.INTERRUPTED:
            return interrupted(closing.detail)


def of_unreadable(error: MalformedEntry | StreamGap) -> Verdict:
    """How a task ends whose stream cannot be read."""
    code = FailureCode.STREAM_LOST if isinstance(error, StreamGap) else FailureCode.MALFORMED_REQUEST
    return Verdict(TaskState.FAILED, error.message, code)


def of_stop(cause: StopCause, detail: str, request: TaskRequest, limit: TimeLimit) -> Ending:
    """The ending of an attempt that was told to stop."""
    match cause:
        case StopCause.TIME_OVER:
            return limit.ending()
        case StopCause.CANCELED:
            return End(TaskState.CANCELED, reason=detail)
        case StopCause.DRAIN if request.on_retry is OnRetry.FAIL:
            return End.failed(FailureCode.INTERRUPTED, "the worker stopped and the skill is never run twice")
        case StopCause.DRAIN:
            return HandBack(HandedBack.DRAIN)
        case StopCause.LEASE_LOST:
            return Abandon("the lease was lost")
        case StopCause.UNPUBLISHABLE:
            return Abandon(detail)


class TimeLimit(NamedTuple):
    """How long an attempt's skill may run, `seconds` (None: without a bound), and which bound that is."""

    seconds: float | None
    is_deadline: bool = False

    def ending(self) -> End:
        """The ending of an attempt whose time ran out: told by the bound that was nearer, never by reading a clock again."""
        if self.is_deadline:
            return End.failed(FailureCode.DEADLINE_EXCEEDED, "the deadline passed while the skill ran")
        return End.failed(FailureCode.TIMEOUT, f"the skill ran longer than {self.seconds:g} s")


def time_limit(skill: Skill, request: TaskRequest, now_ms: int) -> TimeLimit:
    """The nearer of the skill's timeout and the task's deadline."""
    if request.deadline is None:
        return TimeLimit(skill.timeout_s)
    left_s = (request.deadline - now_ms) / 1000
    if skill.timeout_s is not None and skill.timeout_s <= left_s:
        return TimeLimit(skill.timeout_s)
    return TimeLimit(left_s, is_deadline=True)


def of_error(error: BaseException, skill: Skill, opened: Opened, worker: str) -> Ending:
    """The ending of an attempt whose skill raised."""
    match error:
        case OutputTooLarge():
            return End.failed(FailureCode.OUTPUT_TOO_LARGE, error.message)
        case EventTooLarge():
            return End.failed(FailureCode.EVENT_TOO_LARGE, error.message)
        case Unpublishable():
            return Abandon(error.message)
        case Retry():
            return _again(opened, error, error.delay_s, worker)
        case arq.Retry():
            return _again(opened, error, (error.defer_score or 0) / 1000, worker)
        case _ if skill.retry_on and isinstance(error, skill.retry_on):
            return _again(opened, error, None, worker)
        case _:
            return End.failed(FailureCode.SKILL_ERROR, named(error))


def named(error: BaseException) -> str:
    """Type and message of an exception, as text that can be written."""
    try:
        text = str(error)[:_REASON_CHARS].encode(errors="replace").decode()
    except Exception:
        text = "it cannot say what is wrong"
    return f"{type(error).__name__}: {text}"[:_REASON_CHARS]


def _again(opened: Opened, error: BaseException, delay_s: float | None, worker: str) -> Ending:
    if opened.request.on_retry is OnRetry.FAIL:
        return End.failed(FailureCode.SKILL_ERROR, f"{named(error)}; the skill is never run twice")
    if opened.strikes >= opened.request.max_attempts:
        reason = f"{opened.strikes} attempts were made; the last one, of worker {worker}, ended with {named(error)}"
        return End.failed(FailureCode.ATTEMPTS_EXHAUSTED, reason)
    return HandBack(HandedBack.RETRY, backoff_s(opened.strikes) if delay_s is None else delay_s)
