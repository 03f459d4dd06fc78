"""Skills that are plain functions or generators: each run has a thread of its own, so that it may block."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import queue
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

from .context import TaskContext
from .sync_context import SyncTaskContext

_END = object()
_Outcome = tuple[Any, BaseException | None]


def in_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """An async form of a plain function or generator function of (message, SyncTaskContext)."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        async def stream(message: str, context: TaskContext) -> AsyncGenerator[Any, None]:
            thread = SkillThread(context)
            try:
                pieces = await thread.call(function, message, thread.context)
                try:
                    while (piece := await thread.call(next, pieces, _END)) is not _END:
                        thread.context.check()  # a thread that was told to stop while it worked on this piece
                        yield piece
                finally:
                    await thread.call(pieces.close)
            finally:
                thread.end()

        return stream

    @functools.wraps(function)
    async def run(message: str, context: TaskContext) -> Any:
        thread = SkillThread(context)
        try:
            return await thread.call(function, message, thread.context)
        finally:
            thread.end()

    return run


class SkillThread:
    """Responsible for a thread that makes one call after the other for a coroutine.

    A thread cannot be ended from outside: a cancellation is told to its `context`, and the call is waited for. The
    process does not wait for it at its end.
    """

    def __init__(self, context: TaskContext) -> None:
        self._loop = asyncio.get_running_loop()
        self.context = SyncTaskContext(context, self._loop)
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[_Outcome]] | None] = queue.SimpleQueue()
        variables = contextvars.copy_context()
        name = f"skill {context.agent}/{context.skill_name} {context.task_id}"
        threading.Thread(target=variables.run, args=(self._work,), name=name, daemon=True).start()

    async def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Has the thread make a call; returns and raises what that does."""
        outcome: asyncio.Future[_Outcome] = self._loop.create_future()
        self._calls.put((functools.partial(function, *arguments), outcome))
        while not outcome.done():
            try:
                await asyncio.shield(outcome)
            except asyncio.CancelledError:
                self.context.cancel()
        result, error = outcome.result()
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """Ends the thread behind its call."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, outcome = call
            try:
                answer: _Outcome = (function(), None)
            except BaseException as error:  # the skill's, whatever it is: it is raised where the call was made
                answer = (None, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(outcome.set_result, answer)
