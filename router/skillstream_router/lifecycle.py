"""How the processes of this package live: started, running until they are told to stop or a role ends, shut down."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

from skillstream.breaking_off import finish_unless


class Lifecycle(ABC):
    """Responsible for when a process starts and stops; what starts and stops, and in which order, its subclass says."""

    def __init__(self) -> None:
        self._stop_asked = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._shut_down()

    @abstractmethod
    async def start(self) -> None:
        """Starts all roles; none is left running where it raises, or is broken off."""

    async def run(self) -> None:
        """Runs until `stop`, or until a role ends that never should; errors as those of `start`, and the role's."""
        if not await finish_unless(self._stop_asked, self.start()):
            return
        asked = asyncio.ensure_future(self._stop_asked.wait())
        try:
            done, _ = await asyncio.wait((asked, *self._running()), return_when=asyncio.FIRST_COMPLETED)
            for role in done - {asked}:
                role.result()
        finally:
            asked.cancel()
            await self._shut_down()

    def stop(self) -> None:
        """Has `run` stop cleanly."""
        self._stop_asked.set()

    @abstractmethod
    def _running(self) -> Sequence[asyncio.Task[None]]:
        """The roles that never end by themselves."""

    @abstractmethod
    async def _shut_down(self) -> None:
        """Stops all roles."""
