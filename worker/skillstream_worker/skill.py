"""A skill: a function that an author registered, and how it is to be run."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from skillstream_schemas.card import SkillCard
from skillstream_schemas.limits import DEFAULT_ATTEMPTS
from skillstream_schemas.request import OnRetry

from .chunking import Chunking
from .response import Response

if TYPE_CHECKING:
    from .context import TaskContext
    from .sync_context import SyncTaskContext

Piece = str | Response | BaseModel | dict[str, Any]
"""What a streaming skill yields and a plain one returns."""
StreamingFunction = Callable[[str, "TaskContext"], AsyncIterator[Piece]]
PlainFunction = Callable[[str, "TaskContext"], Awaitable[Piece | None]]
BlockingStreamingFunction = Callable[[str, "SyncTaskContext"], Iterator[Piece]]
BlockingFunction = Callable[[str, "SyncTaskContext"], Piece | None]


@dataclass(frozen=True, slots=True)
class Skill:
    """A registered skill. `timeout_s` bounds one attempt, None for no bound; `retry_on` starts another attempt."""

    name: str
    function: Callable[..., Any]
    description: str = ""
    price_micros: int = 0
    tags: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    timeout_s: float | None = None
    max_attempts: int = DEFAULT_ATTEMPTS
    retry_on: tuple[type[BaseException], ...] = ()
    on_retry: OnRetry = OnRetry.RESTART
    chunking: Chunking = field(default_factory=Chunking)
    streams: bool = True

    @property
    def card(self) -> SkillCard:
        """What is announced of this skill."""
        return SkillCard(
            name=self.name, description=self.description, price_micros=self.price_micros, tags=self.tags,
            examples=self.examples, streaming=self.streams, timeout_s=self.timeout_s,
            max_attempts=self.max_attempts, on_retry=self.on_retry,
        )  # fmt: skip


def detect_streaming(function: Callable[..., Any], said: bool | None) -> bool:
    """True for a generator function, False for another function; both may be async.

    Raises TypeError for anything else, or where `said` (streaming=… in the decorator) contradicts the function.
    """
    if not (inspect.isfunction(function) or inspect.ismethod(function)) and not is_async(function):
        raise TypeError(f"{function!r} is neither a function nor a generator function")
    streams = inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)
    if said is True and not streams:
        raise TypeError(f"{function!r} is said to stream but does not yield")
    return streams


def check_parameters(name: str, function: Callable[..., Any]) -> None:
    """Raises TypeError for a function that cannot be called with a message and a context."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # no function, which detect_streaming refuses, or one that does not say
        return
    try:
        signature.bind("", None)
    except TypeError:
        raise TypeError(f"skill {name!r} is called with a message and a context, and its parameters are {signature}") from None


def is_async(function: Callable[..., Any]) -> bool:
    """True for an async function or async generator function; others run in a thread."""
    return inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function)
