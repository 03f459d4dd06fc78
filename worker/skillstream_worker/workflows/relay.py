"""A producer in a task of its own, and the reader of what it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")
Put = Callable[[T], Awaitable[None]]


class Relay(Generic[T]):
    """Responsible for handing a producer's items to one reader, at most `ahead` of them unread.

    The producer runs, and is closed, in one task. What it raises is raised to the reader behind its last item, SystemExit
    and KeyboardInterrupt too: asyncio itself would end the event loop for them. Leaving the relay cancels the
    producer and waits for its end.
    """

    def __init__(self, produce: Callable[[Put[T]], Awaitable[None]], ahead: int) -> None:
        self._produce, self._ahead = produce, ahead
        self._items: list[T] = []
        self._ready, self._room = asyncio.Event(), asyncio.Event()
        self._has_taken = self._is_left = False
        self._error: BaseException | None = None
        self._producer: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Relay unread={len(self._items)} over={self._producer is not None and self._producer.done()}>"

    async def __aenter__(self) -> Self:
        """Starts the producer."""
        self._producer = asyncio.create_task(self._run())
        self._producer.add_done_callback(lambda _: self._ready.set())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancels the producer where it still runs, and waits for its end."""
        assert self._producer is not None
        self._is_left = True
        self._room.set()
        self._producer.cancel()
        await ended([self._producer])

    async def take(self, pause_s: float = 0.0) -> list[T]:
        """All that has gathered, as soon as there is anything; nothing once the producer is done.

        Waits `pause_s` seconds behind the last batch first. Raises what the producer raised.
        """
        assert self._producer is not None
        if pause_s and self._has_taken and not self._producer.done():
            await asyncio.wait([self._producer], timeout=pause_s)
        while not self._items:
            if self._producer.done():
                if self._error is not None:
                    raise self._error
                if self._producer.cancelled():
                    raise asyncio.CancelledError
                return []
            self._ready.clear()
            await self._ready.wait()
        batch, self._items = self._items, []
        self._has_taken = True
        self._room.set()
        return batch

    async def _run(self) -> None:
        try:
            await self._produce(self._put)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = error

    async def _put(self, item: T) -> None:
        while len(self._items) >= self._ahead and not self._is_left:
            self._room.clear()
            await self._room.wait()
        if self._is_left:
            raise asyncio.CancelledError  # in a producer that swallowed its cancellation
        self._items.append(item)
        self._ready.set()


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    """Waits until tasks that were cancelled have ended; a cancellation that comes meanwhile is raised behind that."""
    cancelled: asyncio.CancelledError | None = None
    while any(not task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
