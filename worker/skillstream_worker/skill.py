"""A skill: a function that an author registered, and how it is to be run."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from skillstream_schemas.card import SkillCard
from skillstream_schemas.request import OnRetry

from .chunking import Chunking
from .response import Response

if TYPE_CHECKING:
    from .context import TaskContext

Piece = str | Response | BaseModel | dict[str, Any]
"""What a streaming skill yields and a plain one returns."""
StreamingFunction = Callable[[str, "TaskContext"], AsyncGenerator[Piece, None]]
PlainFunction = Callable[[str, "TaskContext"], Awaitable[Piece | None]]


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
    max_attempts: int = 3
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
    """True for an async generator function, False for an async function.

    Raises TypeError for anything else, or where `said` (streaming=… in the decorator) contradicts the function.
    """
    streams = inspect.isasyncgenfunction(function)
    if not streams and not inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} is neither an async function nor an async generator function")
    if said is True and not streams:
        raise TypeError(f"{function!r} is said to stream but does not yield")
    return streams
