"""Role: takes finished jobs off the queues, in batches, behind the answers to their finals."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from skillstream.broker import Settlement
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .broker import WorkerBroker

log = logging.getLogger(__name__)
_BATCH = 200


class Settler:
    """Responsible for settling jobs whose finals are known to be on their streams (rule P7).

    A settlement that cannot be made is no loss: the job is claimed again, found final, and settled then.
    """

    def __init__(self, broker: WorkerBroker) -> None:
        self._broker = broker
        self._waiting: dict[str, list[Settlement]] = defaultdict(list)
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __repr__(self) -> str:
        return f"<Settler waiting={sum(map(len, self._waiting.values()))}>"

    def settle(self, agent: str, settlement: Settlement) -> None:
        """Has a job settled soon."""
        self._waiting[agent].append(settlement)
        self._idle.clear()
        self._wake.set()

    async def flush(self) -> None:
        """Waits until nothing is left to settle."""
        await self._idle.wait()

    async def run(self) -> None:
        """Settles until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for agent in list(self._waiting):
                settlements = self._waiting.pop(agent)
                for start in range(0, len(settlements), _BATCH):
                    await self._settle(agent, settlements[start : start + _BATCH])
            if not self._waiting:
                self._idle.set()

    async def _settle(self, agent: str, settlements: list[Settlement]) -> None:
        try:
            await self._broker.settle(agent, settlements)
        except (BrokerUnavailable, BrokerRefused) as error:
            log.warning("%d jobs of %s stay unsettled until they are claimed again: %s", len(settlements), agent, error)
