"""Role: announces this worker's agents on the broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .agent import Agent
from .broker import WorkerBroker

_WORK = "announcing agents"
log = logging.getLogger(__name__)
_LEAVE_S = 2.0


class Announcer:
    """Responsible for the agents' cards, refreshed each `announce_s`; worker and skill are forgotten after `forget_s`."""

    def __init__(self, broker: WorkerBroker, agents: Sequence[Agent]) -> None:
        self._broker, self._agents = broker, agents
        self._period_s = broker.settings.announce_s

    async def announce(self, *, leaving: bool = False) -> None:
        """Announces all agents once, or that this worker leaves; raises BrokerUnavailable, BrokerRefused."""
        forget_ms = int(self._broker.settings.forget_s * 1000)
        for agent in self._agents:
            await self._broker.announce(agent.card, forget_ms, leaving=leaving)

    async def leave(self) -> None:
        """Takes this worker off the cards; where the broker does not answer it is forgotten after `forget_s`."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self.announce(leaving=True)
        except (TimeoutError, BrokerUnavailable, BrokerRefused) as error:
            log.warning("leaving the cards: %s: %s", type(error).__name__, error)

    async def run(self) -> None:
        """Announces until it is cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self.announce()
                self._broker.outage.over(_WORK)
            except (BrokerUnavailable, BrokerRefused) as error:
                self._broker.outage.met(_WORK, error)
