"""The answers to a request to open an attempt: a closed set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from skillstream_schemas.ids import EventId
from skillstream_schemas.request import TaskRequest


class Opened(NamedTuple):
    """The attempt is ours. `strikes` counts attempts that were not handed back by a drain, this one included."""

    attempt: int
    strikes: int
    request: TaskRequest
    cancel_reason: str | None


@dataclass(frozen=True, slots=True)
class AlreadyFinal:
    """The task has ended: only its job is left to settle. `fields` are the final's, as far as they are text."""

    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Superseded:
    """A newer claim has opened an attempt: this one has nothing to say."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A task of ours has no stream: it is never run; the router decides."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The stream went on, or back, since it was read: read again."""


@dataclass(frozen=True, slots=True)
class MustRead:
    """The attempt goes on behind the text of the one before: read it first."""

    request: TaskRequest


class CloseCause(StrEnum):
    """Why a task ends instead of running again."""

    CANCELED = "canceled"
    EXHAUSTED = "exhausted"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class MustClose:
    """The task is to be closed by this worker. `detail` is the reason of a cancellation, else the last worker."""

    cause: CloseCause
    top: EventId
    request: TaskRequest
    detail: str


Opening = Opened | AlreadyFinal | Superseded | Gone | Stale | MustRead | MustClose
