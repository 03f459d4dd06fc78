"""Role: claims jobs of one agent, as many as there are free slots (rule P2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from skillstream.clock import Clock
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable

from .agent import Agent
from .broker import Claimed, ClaimedJob, WakeLine, WorkerBroker
from .slots import Slots

log = logging.getLogger(__name__)
_BATCH = 100
_HOLD_S = 0.05
_MOST_AVOIDED = 100
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Claimer:
    """Responsible for finding jobs of an agent and taking them.

    Candidates come by name, from the wake list or from the answer before; an idle worker blocks on the wake list
    and looks at the queue itself each `poll_s`, for clients that do not ring, and when the next job falls due.
    What it was told to `avoid` it leaves to others for a while. Each job that `start` is given has a slot.
    """

    def __init__(
        self, broker: WorkerBroker, agent: Agent, slots: Slots, clock: Clock, start: Callable[[Agent, ClaimedJob], None]
    ) -> None:
        self.is_idle = False
        self._broker, self._agent, self._slots, self._clock, self._start = broker, agent, slots, clock, start
        self._line = WakeLine(broker, agent.name)
        self._candidates: list[str] = []
        self._turnover = 0
        self._due_ms: float | None = None
        self._avoided: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<Claimer {self._agent.name} candidates={len(self._candidates)} idle={self.is_idle}>"

    def avoid(self, task_id: str) -> None:
        """Leaves a task to others until the cards on the broker must have been renewed: this worker lacks its skill."""
        if len(self._avoided) >= _MOST_AVOIDED:
            del self._avoided[next(iter(self._avoided))]
        settings = self._broker.settings  # who announces the card takes off what is that old, once a period
        self._avoided[task_id] = self._clock.elapsed_s() + settings.forget_s + settings.announce_s

    async def run(self) -> None:
        """Claims until it is cancelled; a broker that is away is waited for."""
        pause_s = _FIRST_PAUSE_S
        work, outage = f"claiming jobs of {self._agent.name}", self._broker.outage
        try:
            while True:
                try:
                    await self._room()
                    if self.is_idle and not self._candidates:
                        self._candidates = await self._line.wait(min(self._slots.free, _BATCH), self._patience_s())
                    await self._claim()
                    pause_s = _FIRST_PAUSE_S
                    outage.over(work)
                except (BrokerUnavailable, BrokerRefused) as error:
                    outage.met(work, error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        finally:
            self._line.close()

    async def _room(self) -> None:
        """Waits for a free slot; names that nothing came free for go back to the wake list, where others find them."""
        if self._candidates and not self._slots.free:
            try:
                async with asyncio.timeout(_HOLD_S):
                    await self._slots.wait()
            except TimeoutError:
                names, self._candidates, self._turnover = self._candidates, [], 0
                await self._broker.ring(self._agent.name, names)
        await self._slots.wait()

    async def _claim(self) -> None:
        # reserved before anything is awaited: claimers of other agents look at the same slots
        reserved = self._slots.reserve(_BATCH)
        if not reserved:
            return
        started = 0
        try:
            for job in await self._take(reserved):
                started += 1
                self._start(self._agent, job)
        finally:
            self._slots.return_unused(reserved - started)

    async def _take(self, free: int) -> list[ClaimedJob]:
        """Takes jobs for as many slots."""
        candidates = self._without_avoided(self._candidates)
        tried, self._candidates = candidates[:free], candidates[free:]
        # names for the slots that are free, and for those that come free until the answer, by what the last one saw
        wanted = max(0, free - len(tried) + self._turnover - len(self._candidates))
        if wanted:
            wanted += len(self._avoided)  # they may stand at the queue's head
        freed_before = self._slots.freed_count
        claimed = await self._broker.claim(self._agent.name, tried, wanted)
        self._turnover = min(self._slots.freed_count - freed_before, _BATCH)
        further = self._without_avoided(claimed.further)
        self._candidates += further
        if wanted:
            self.is_idle = not further
            self._due_ms = claimed.due_ms
        self._report(claimed)
        return claimed.won

    def _without_avoided(self, task_ids: list[str]) -> list[str]:
        if not self._avoided:
            return task_ids
        now_s = self._clock.elapsed_s()
        self._avoided = {task_id: until_s for task_id, until_s in self._avoided.items() if until_s > now_s}
        return [task_id for task_id in task_ids if task_id not in self._avoided]

    def _patience_s(self) -> float:
        poll_s = self._broker.settings.poll_s
        if self._due_ms is None:
            return poll_s
        return min(poll_s, max(0.001, (self._due_ms - self._clock.now_ms()) / 1000))

    def _report(self, claimed: Claimed) -> None:
        for member in claimed.removed:
            log.error(
                "malformed_job: %r on the queue of %s is no job id of this agent and was removed", member[:200], self._agent.name
            )
