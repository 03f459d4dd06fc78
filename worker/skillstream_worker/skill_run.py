"""One run of a skill, in a task of its own: an attempt can end while its skill goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .outcome import End
from .strays import Strays


class SkillRun:
    """Responsible for a skill from its first step to its end, or to `grace_s` seconds after it was told to stop.

    `result` is how it ended or what it raised, None while it runs; `was_told` says whether it was told to stop before.
    """

    def __init__(self, work: Coroutine[Any, Any, End], label: str, grace_s: float, strays: Strays) -> None:
        self.result: End | BaseException | None = None
        self.was_told = False
        self._label, self._grace_s, self._strays = label, grace_s, strays
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._timers: list[asyncio.TimerHandle] = []
        self._task = self._loop.create_task(self._run(work), name=label)

    def __repr__(self) -> str:
        return f"<SkillRun {self._label} told={self.was_told} result={self.result!r}>"

    def limit(self, limit_s: float, tell: Callable[[], None]) -> None:
        """Has `tell` called if the skill still runs after `limit_s` seconds."""
        self._timers.append(self._loop.call_later(limit_s, tell))

    async def wait(self) -> End | BaseException | None:
        """Waits for the result; None where the skill did not let go: it is among the strays then."""
        try:
            await self._over
        except asyncio.CancelledError:  # the process ends
            self.stop()
            raise
        return self.result

    def stop(self) -> None:
        """Cancels the skill where it runs; once more where it swallowed that, but its grace is not longer for it."""
        if self._over.done():
            return
        self._task.cancel()
        if not self.was_told:
            self.was_told = True
            self._timers.append(self._loop.call_later(self._grace_s, self._leave))

    async def _run(self, work: Coroutine[Any, Any, End]) -> None:
        try:
            self.result = await work
        except BaseException as error:  # SystemExit, KeyboardInterrupt (signals come to the loop) and the like are the skill's
            self.result = error
        self._disarm()
        if not self._over.done():  # nor where it was left
            self._over.set_result(None)

    def _disarm(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()  # they hold the attempt

    def _leave(self) -> None:
        self._disarm()
        self._strays.add(self._task, self._label, self._grace_s)
        self._over.set_result(None)
