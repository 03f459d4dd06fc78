"""Role: announces this worker's agents on the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .agent import Agent
from .broker import WorkerBroker

_WORK = "announcing agents"


class Announcer:
    """Responsible for the agents' cards, refreshed each `announce_s`; worker and skill are forgotten after `forget_s`."""

    def __init__(self, broker: WorkerBroker, agents: Sequence[Agent]) -> None:
        self._broker, self._agents = broker, agents
        self._period_s = broker.settings.announce_s

    async def announce(self) -> None:
        """Announces all agents once; raises BrokerUnavailable."""
        forget_ms = int(self._broker.settings.forget_s * 1000)
        for agent in self._agents:
            await self._broker.announce(agent.card, forget_ms)

    async def run(self) -> None:
        """Announces until it is cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self.announce()
                self._broker.outage.over(_WORK)
            except (BrokerUnavailable, BrokerRefused) as error:
                self._broker.outage.met(_WORK, error)
