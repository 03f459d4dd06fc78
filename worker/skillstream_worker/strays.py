"""Skills that go on behind the end of their attempts."""

from __future__ import annotations

import asyncio
import logging

from .slots import Slots

log = logging.getLogger(__name__)


class Strays:
    """Responsible for runs of skills that did not let go: each keeps its slot until it ends, since it goes on using it."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"strays={len(self._tasks)}"

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: asyncio.Task[None], label: str, grace_s: float) -> None:
        """Keeps a run that went on for `grace_s` seconds after it was told to stop; what it does no longer counts."""
        self._tasks.add(task)
        self._slots.take()
        task.add_done_callback(self._ended)
        log.warning("skill_stuck: %s goes on %g s after it was told to stop; it keeps its slot until it ends", label, grace_s)
        if len(self._tasks) >= self._slots.capacity:
            log.error("skill_stuck: all %d slots are held by skills that do not stop; nothing is claimed", self._slots.capacity)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._slots.give_back()
        log.info("%s has ended at last", task.get_name())
