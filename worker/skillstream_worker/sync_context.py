"""What a skill in a thread is given beside its message."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from skillstream_schemas.event import FollowedEvent

from .context import TaskContext, TaskDetails

T = TypeVar("T")


class SyncTaskContext(TaskDetails):
    """`TaskContext` for a skill that is a plain function or generator: its methods block instead of being awaited.

    `cancelled` is a `threading.Event`, set when the attempt is to end: a skill that works for long looks at it, or
    pauses with `cancelled.wait(seconds)`. Behind it every method raises CancelledError.
    """

    def __init__(self, context: TaskContext, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            task_id=context.task_id, attempt=context.attempt, request=context.request, history=context.history,
            partial_text=context.partial_text, log=context.log,
        )  # fmt: skip
        self.cancelled = threading.Event()
        self._context, self._loop = context, loop
        self._lock = threading.Lock()
        self._waiting: concurrent.futures.Future[Any] | None = None

    def status(self, text: str, progress: float | None = None, metadata: dict[str, Any] | None = None) -> None:
        """Reports progress (0 to 1) that is shown and not accumulated; errors as those of `TaskContext.status`."""
        self._run(self._context.status(text, progress, metadata))

    def patch(self, operations: Sequence[Mapping[str, Any]]) -> None:
        """Says a change of the snapshot before as a JSON Patch; errors as those of `TaskContext.patch`."""
        self._run(self._context.patch(operations))

    def usage(self, **counts: int | float) -> None:
        """Adds to the usage that the final carries; raises ValueError."""
        self._run(self._count(counts))

    def delegate(self, agent: str, skill: str, message: str, **options: Any) -> Iterator[FollowedEvent]:
        """Has another agent's skill do a part, and yields the child task's events; as `TaskContext.delegate`."""
        events = self._context.delegate(agent, skill, message, **options)
        while (event := self._run(_next(events))) is not None:
            yield event

    def check(self) -> None:
        """Raises CancelledError where the attempt is to end."""
        if self.cancelled.is_set():
            raise asyncio.CancelledError("the attempt is to end")

    def cancel(self) -> None:
        """Called on the event loop: tells the thread, and ends what it waits for here."""
        with self._lock:
            self.cancelled.set()
            waiting = self._waiting
        if waiting is not None:
            waiting.cancel()

    async def _count(self, counts: dict[str, int | float]) -> None:
        self._context.usage(**counts)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self.cancelled.is_set():
                work.close()
                self.check()
            self._waiting = waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError("the attempt is to end") from None


async def _next(events: Any) -> FollowedEvent | None:
    event: FollowedEvent | None = await anext(events, None)
    return event
