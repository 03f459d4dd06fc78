"""Role: renews the leases of running attempts and keeps their keys alive."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping

from skillstream.clock import Clock
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .attempt import Attempt
from .broker import WorkerBroker
from .outcome import StopCause

log = logging.getLogger(__name__)
_WORK = "renewing leases"
_RENEWALS_PER_LEASE = 3
_EXTEND_S = 3600.0


class Renewer:
    """Responsible for the leases of all attempts of this process (rules P3, P12)."""

    def __init__(self, broker: WorkerBroker, running: Mapping[str, Attempt], clock: Clock) -> None:
        self._broker, self._running, self._clock = broker, running, clock
        self._period_s = broker.settings.lease_s / _RENEWALS_PER_LEASE
        self._extended_at_s = clock.elapsed_s()

    async def run(self) -> None:
        """Renews until it is cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            try:
                await self.renew()
                await self._extend()
                self._broker.outage.over(_WORK)
            except (BrokerUnavailable, BrokerRefused) as error:
                self._broker.outage.met(_WORK, error)

    async def renew(self) -> None:
        """Renews all leases once; attempts that lost theirs are told to stop."""
        by_agent: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in self._running.values():
            by_agent[attempt.lease.agent].append(attempt)
        for agent, attempts in by_agent.items():
            held = await self._broker.renew(agent, [attempt.lease for attempt in attempts])
            for attempt, is_held in zip(attempts, held, strict=True):
                if not is_held and not attempt.is_over:
                    log.warning("lease_lost: task %s, claim %d", attempt.lease.task_id, attempt.lease.claim)
                    attempt.stop(StopCause.LEASE_LOST)

    async def _extend(self) -> None:
        if self._clock.elapsed_s() - self._extended_at_s >= _EXTEND_S:
            self._extended_at_s = self._clock.elapsed_s()
            await self._broker.extend([attempt.lease for attempt in self._running.values()])
