"""Role: compares the agents' queues with the database, to find jobs that were left and tasks whose ring was lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from skillstream_schemas.errors import SkillstreamError

from .broker import RouterBroker
from .store import Store

log = logging.getLogger(__name__)
_WORK = "comparing the queues with the database"


@dataclass(frozen=True, slots=True)
class ReconcilingPace:
    """How queues are walked: all of them each `period_s`, about `batch` jobs at once, with `pause_s` between two batches."""

    period_s: float = 30.0
    batch: int = 200
    pause_s: float = 0.1


class Reconciler:
    """Responsible for no queued task staying unknown to the database, and no job staying behind its final.

    `project` applies tasks without a ring; `look` has tasks looked at that are final and still queued.
    """

    def __init__(
        self,
        broker: RouterBroker,
        store: Store,
        project: Callable[[Iterable[str]], Awaitable[None]],
        look: Callable[[Iterable[str]], None],
        pace: ReconcilingPace,
    ) -> None:
        self._broker = broker
        self._store = store
        self._project = project
        self._look = look
        self._pace = pace

    def __repr__(self) -> str:
        return f"<Reconciler period_s={self._pace.period_s:g}>"

    async def run(self) -> None:
        """Walks the queues each period until it is cancelled."""
        while True:
            await asyncio.sleep(self._pace.period_s)
            try:
                await self.sweep()
                self._broker.outage.over(_WORK)
            except SkillstreamError as error:
                self._broker.outage.met(_WORK, error)
            except Exception:
                log.exception("comparing the queues with the database broke")

    async def sweep(self) -> None:
        """Walks the queues of all agents once."""
        for agent in await self._broker.cards():
            cursor = -1
            while cursor:
                cursor, task_ids = await self._broker.queue_page(agent, max(cursor, 0), self._pace.batch)
                await self._compare(task_ids)
                await asyncio.sleep(self._pace.pause_s)

    async def _compare(self, task_ids: Sequence[str]) -> None:
        known = await self._store.tasks_by_id(task_ids)
        self._look(task_id for task_id, record in known.items() if record.state.is_final)
        unknown = [task_id for task_id in task_ids if task_id not in known]
        if unknown:
            await self._project(unknown)
