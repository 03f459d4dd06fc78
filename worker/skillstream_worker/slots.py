"""How many skills a worker runs at once."""

from __future__ import annotations

import asyncio


class Slots:
    """Responsible for counting running skills against the worker's concurrency, `capacity`; `freed_count` have ended so far."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._taken = 0
        self.freed_count = 0
        self._freed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Slots {self._taken}/{self.capacity}>"

    @property
    def free(self) -> int:
        """How many attempts may start now."""
        return max(0, self.capacity - self._taken)

    def reserve(self, most: int) -> int:
        """Takes what is free, `most` at most, for attempts that may start; several who ask never get the same."""
        count = min(self.free, most)
        self._taken += count
        return count

    def return_unused(self, count: int) -> None:
        """Gives back what was reserved and is not needed."""
        self._taken -= count
        if count:
            self._freed.set()

    def take(self) -> None:
        """One more is held, free or not: by a skill that goes on behind its attempt."""
        self._taken += 1

    def give_back(self) -> None:
        """One attempt has ended."""
        self._taken -= 1
        self.freed_count += 1
        self._freed.set()

    async def wait(self) -> int:
        """Waits until an attempt may start; returns how many may."""
        while self.free < 1:
            self._freed.clear()
            await self._freed.wait()
        return self.free
