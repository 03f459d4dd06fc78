"""Role: notices a skill that holds the event loop, so that leases lapse with a name in the log and not in silence."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Sequence
from types import CodeType, FrameType

from skillstream.clock import Clock

from .agent import Agent

log = logging.getLogger(__name__)
_LOOKS_PER_LEASE = 6
_ALLOWED_SHARE = 0.5
"""Of a lease: renewals come each third of one, so that behind half of it the next is overdue."""


class Watchdog:
    """Responsible for a thread that looks at the event loop from outside: nothing on the loop can, while it is held.

    What blocks is named once each time. Its leases lapse, another worker takes its tasks, and what it still says is
    refused.
    """

    def __init__(self, agents: Sequence[Agent], lease_s: float, clock: Clock) -> None:
        self._names = {_code(skill.function): f"{agent.name}/{name}" for agent in agents for name, skill in agent.skills.items()}
        self._period_s = lease_s / _LOOKS_PER_LEASE
        self._allowed_s = lease_s * _ALLOWED_SHARE
        self._clock = clock
        self._beat_s = clock.elapsed_s()
        self._loop_thread = 0
        self._ended = threading.Event()

    async def run(self) -> None:
        """Beats on the loop and has the thread listen, until it is cancelled."""
        self._loop_thread = threading.get_ident()
        self._beat_s = self._clock.elapsed_s()
        thread = threading.Thread(target=self._listen, name="skillstream-watchdog", daemon=True)
        thread.start()
        try:
            while True:
                await asyncio.sleep(self._period_s)
                self._beat_s = self._clock.elapsed_s()
        finally:
            self._ended.set()
            thread.join()

    def _listen(self) -> None:
        reported_s = 0.0
        while not self._ended.wait(self._period_s):
            beat_s = self._beat_s
            silent_s = self._clock.elapsed_s() - beat_s
            if silent_s > self._allowed_s and reported_s != beat_s:
                reported_s = beat_s
                log.error("loop_blocked: %s holds the event loop for %.1f s; leases are not renewed", self._culprit(), silent_s)

    def _culprit(self) -> str:
        frame: FrameType | None = sys._current_frames().get(self._loop_thread)
        place = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        while frame is not None:
            if (name := self._names.get(frame.f_code)) is not None:
                return f"skill {name} (at {place})"
            frame = frame.f_back
        return f"something at {place}"


def _code(function: object) -> CodeType | None:
    return getattr(function, "__code__", None)
