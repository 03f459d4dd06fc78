"""What Redis's answers to an attempt's entries mean."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from skillstream.calling import REDIRECTS, RETRY_KINDS, STALE_LINK, Problem
from skillstream.resp import Reply, ReplyError
from skillstream_schemas.errors import BrokerUnavailable
from skillstream_schemas.ids import EventId

_DISCARDED = "EXECABORT Transaction discarded because of: "


class Loss(StrEnum):
    """Why an attempt can add nothing more to its stream."""

    FENCED = "a newer attempt has opened"
    GONE = "the stream is gone"
    WENT_BACK = "the broker lost entries of the attempt"
    BROKER = "the broker does not take entries"


def loss_behind(top: EventId | None, attempt: int) -> Loss:
    """Why an attempt cannot go on behind the last entry of its stream, None where there is no stream."""
    if top is None:
        return Loss.GONE
    return Loss.FENCED if top.attempt > attempt else Loss.WENT_BACK


def problem_of(replies: Sequence[Reply]) -> ReplyError | None:
    """The error among the answers to a unit, None where all entries were added."""
    answers = replies[-1] if len(replies) > 1 else replies
    if isinstance(answers, ReplyError):
        return _cause(answers, replies)
    for answer in answers:
        if not isinstance(answer, bytes):  # an error, or nil from NOMKSTREAM: no stream
            return answer if isinstance(answer, ReplyError) else ReplyError("NOSTREAM nothing was added")
    return None


def _cause(aborted: ReplyError, replies: Sequence[Reply]) -> ReplyError:
    """Why a transaction was refused: one of its commands was, or EXEC itself, which says so behind its own error."""
    refused = next(reply for reply in replies if isinstance(reply, ReplyError))
    return ReplyError(str(refused).removeprefix(_DISCARDED)) if refused is aborted else refused


def is_stale_link(problem: Problem) -> bool:
    """True where the connection leads to a server that is no primary any more."""
    return isinstance(problem, ReplyError) and problem.kind in STALE_LINK


def passes(problem: Problem) -> bool:
    """True for a refusal that waiting may mend, or asking where the stream is now."""
    return isinstance(problem, BrokerUnavailable) or problem.kind in RETRY_KINDS or problem.kind in REDIRECTS
