"""What Redis's answers to an attempt's entries mean."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from skillstream.pipeline import RETRY_KINDS
from skillstream.resp import Reply, ReplyError
from skillstream_schemas.errors import BrokerUnavailable


class Loss(StrEnum):
    """Why an attempt can add nothing more to its stream."""

    FENCED = "a newer attempt has opened"
    GONE = "the stream is gone"
    WENT_BACK = "the broker lost entries of the attempt"
    BROKER = "the broker does not take entries"


def problem_of(replies: Sequence[Reply]) -> Reply:
    """The error among the answers to a unit, None where all entries were added."""
    answers = replies[-1] if len(replies) > 1 else replies
    if isinstance(answers, ReplyError):
        return answers
    for answer in answers:
        if not isinstance(answer, bytes):  # an error, or nil from NOMKSTREAM: no stream
            return answer if isinstance(answer, ReplyError) else ReplyError("NOSTREAM nothing was added")
    return None


def passes(problem: Reply) -> bool:
    """True for a refusal that waiting may mend."""
    return isinstance(problem, BrokerUnavailable) or (isinstance(problem, ReplyError) and problem.kind in RETRY_KINDS)
