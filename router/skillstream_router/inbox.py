"""Role: reads the inboxes and hands their rings on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .broker import RouterBroker
from .projection import Ring

_WORK = "reading the inboxes"
_RINGS_AT_ONCE = 4000
_FEW_RINGS = 100
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class ReadingPace:
    """How the inboxes are read, in seconds: `block_s` waiting for rings, `gather_s` for more where they are few,
    `take_over_s` until another router's are taken over.
    """

    block_s: float = 2.0
    take_over_s: float = 60.0
    gather_s: float = 0.01


class Inbox:
    """Responsible for every ring reaching a projector, whatever breaks: connections, groups, other routers.

    Rings wait in `rings`, which holds one batch: while projectors are busy, the next one collects on the broker.
    """

    def __init__(self, broker: RouterBroker, rings: asyncio.Queue[list[Ring]], pace: ReadingPace) -> None:
        self.reading = asyncio.Event()
        self._broker = broker
        self._rings = rings
        self._pace = pace
        self._count = max(1, _RINGS_AT_ONCE // broker.settings.shards)
        self._taken_over_s = float("-inf")

    def __repr__(self) -> str:
        return f"<Inbox of {self._broker.consumer} reading={self.reading.is_set()} batches_waiting={self._rings.qsize()}>"

    async def run(self) -> None:
        """Reads until it is cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                await self._begin()
                pause_s = _FIRST_PAUSE_S
                while True:
                    await self._read()
            except (BrokerUnavailable, BrokerRefused) as error:
                self._broker.outage.met(_WORK, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def hand_on_pending(self) -> None:
        """Hands on what was given to this router and is not acknowledged: also what came in an answer that never arrived."""
        await self._hand_on(await self._broker.read_own_pending(self._count))

    async def _begin(self) -> None:
        await self._broker.create_groups()  # also after FLUSHALL
        await self.hand_on_pending()

    async def _read(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._taken_over_s > self._pace.take_over_s / 2:
            await self._hand_on(await self._broker.take_over(self._pace.take_over_s, self._count))
            self._taken_over_s = now_s
        self.reading.set()
        rings = await self._broker.read_rings(self._count, self._pace.block_s)
        self._broker.outage.over(_WORK)
        if 0 < len(rings) < _FEW_RINGS:
            # a task's rings come close behind each other and fold to one row; and its first token, on its way through
            # this process to an HTTP client, does not wait behind the database's work
            await asyncio.sleep(self._pace.gather_s)
            rings += await self._broker.read_rings(self._count, 0)
        await self._hand_on(rings)

    async def _hand_on(self, rings: list[Ring]) -> None:
        if rings:
            await self._rings.put(rings)
