"""How a performance of a skill ends, and what becomes of an attempt: two closed sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from skillstream_schemas.errors import FailureCode
from skillstream_schemas.event import HandedBack
from skillstream_schemas.state import TaskState


class End(NamedTuple):
    """The task is to end. `own_text` counts only where nothing was accumulated; `data` is the structured result."""

    state: TaskState
    error: FailureCode | None = None
    reason: str | None = None
    own_text: str = ""
    metadata: Mapping[str, Any] | None = None
    data: Any = None

    @classmethod
    def failed(cls, error: FailureCode, reason: str) -> End:
        """The task failed; what it said so far is kept."""
        return cls(TaskState.FAILED, error, reason)


@dataclass(frozen=True, slots=True)
class HandBack:
    """Another attempt is to go on after `delay_s` seconds."""

    why: HandedBack
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Abandon:
    """The attempt has nothing more to say: another holds the task, or the broker is away."""

    reason: str


Ending = End | HandBack | Abandon


class Outcome(StrEnum):
    """What became of an attempt."""

    FINISHED = "finished"
    CLOSED = "closed"
    ALREADY_FINAL = "already-final"
    HANDED_BACK = "handed-back"
    ELSEWHERE = "elsewhere"
    SUPERSEDED = "superseded"
    ABANDONED = "abandoned"
    GONE = "gone"


class StopCause(StrEnum):
    """Why an attempt is told to stop, the weakest first: a later, stronger one replaces it."""

    DRAIN = "drain"
    TIME_OVER = "time-over"
    CANCELED = "canceled"
    LEASE_LOST = "lease-lost"
    UNPUBLISHABLE = "unpublishable"

    @property
    def strength(self) -> int:
        """Higher replaces lower."""
        return list(StopCause).index(self)
