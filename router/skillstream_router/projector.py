"""Role: applies what the rings point at to the database, then to the broker (rule P13)."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from skillstream.clock import Clock
from skillstream_schemas.errors import (
    BrokerRefused,
    BrokerUnavailable,
    DatabaseRefused,
    DatabaseUnavailable,
    FailureCode,
    MalformedEntry,
)

from .broker import RouterBroker
from .portion import Portion
from .projection import Ends, Notice, Projected, Ring, fold, lost, project
from .settling import Ended, Settler
from .store import Applied, RecentMessages, Store, TaskRecord, Turns

log = logging.getLogger(__name__)
_WORK = "recording tasks"

TASKS_AT_ONCE = 1000
"""Tasks of one transaction at most."""
_NO_TASK = ""
"""Under which rings wait that name no task."""
_ENDED_LATELY = 10_000
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was fetched of a batch, split by what can be done with it."""

    projected: list[tuple[Projected, Ends]]
    streamless: list[Notice]

    @property
    def ended(self) -> list[Ended]:
        return [
            Ended(projected.record, projected.reply or "", ends.top)
            for projected, ends in self.projected
            if projected.record.state.is_final
        ]


class Projector:
    """Responsible for taking batches of rings through the order of rule P13, again from the start if it breaks off.

    `look` is called with ids of tasks whose stream is missing or contradicts the database.
    """

    def __init__(
        self,
        broker: RouterBroker,
        store: Store,
        settler: Settler,
        rings: asyncio.Queue[list[Ring]],
        clock: Clock,
        look: Callable[[Iterable[str]], None],
    ) -> None:
        self._broker = broker
        self._store = store
        self._settler = settler
        self._rings = rings
        self._clock = clock
        self._look = look
        self._fetching = Portion(TASKS_AT_ONCE)
        self._listing = Portion(TASKS_AT_ONCE)
        self.applied = 0
        self.ended_lately: deque[str] = deque(maxlen=_ENDED_LATELY)
        """Tasks whose finals were recorded last."""

    def __repr__(self) -> str:
        return f"<Projector tasks_applied={self.applied} fetching={self._fetching!r}>"

    async def run(self) -> None:
        """Applies batches until it is cancelled; what it had not acknowledged comes again."""
        while True:
            rings = await self._rings.get()
            try:
                await self._persist(rings)
            except Exception:
                log.exception("a batch of %d rings broke; it stays pending", len(rings))
            finally:
                self._rings.task_done()

    async def project(self, task_ids: Iterable[str]) -> None:
        """Applies tasks without a ring; raises BrokerUnavailable, BrokerRefused and DatabaseUnavailable."""
        waiting = [Notice(task_id) for task_id in sorted(set(task_ids))]
        while waiting:
            batch = waiting[: self._fetching.of(len(waiting))]
            await self._apply(batch)
            del waiting[: len(batch)]

    async def _persist(self, rings: Sequence[Ring]) -> None:
        pause_s = _FIRST_PAUSE_S
        waiting: dict[str, list[Ring]] = defaultdict(list)
        for ring in rings:
            waiting[ring.task_id].append(ring)
        while waiting:
            try:
                await self._work_off(waiting)
                self._broker.outage.over(_WORK)
            except (BrokerUnavailable, BrokerRefused, DatabaseUnavailable) as error:
                self._broker.outage.met(_WORK, error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _work_off(self, waiting: dict[str, list[Ring]]) -> None:
        """Applies rings by task id and takes them out of `waiting` once they are acknowledged."""
        for ring in waiting.get(_NO_TASK, ()):
            log.error("malformed_ring: entry %s of inbox %d: %s", ring.id, ring.shard, ring.problem)
        await self._acknowledge(waiting, [_NO_TASK])
        notices = list(fold(chain.from_iterable(waiting.values())).values())
        while notices:
            batch = notices[: self._fetching.of(len(notices))]
            streamless = await self._apply(batch)
            # behind the commit: only now the reaper finds rows of tasks that were lost
            self._look(notice.task_id for notice in streamless)
            await self._acknowledge(waiting, [notice.task_id for notice in batch])
            del notices[: len(batch)]

    async def _acknowledge(self, waiting: dict[str, list[Ring]], task_ids: Sequence[str]) -> None:
        await self._broker.acknowledge(chain.from_iterable(waiting.get(task_id, ()) for task_id in task_ids))
        for task_id in task_ids:
            waiting.pop(task_id, None)

    async def _apply(self, notices: Sequence[Notice]) -> list[Notice]:
        """Everything of rule P13 but reading and acknowledging; returns those that have no stream."""
        seen = await self._fetch(notices)
        ended = seen.ended
        contexts: set[str] = set()
        if self._broker.settings.context_messages:
            contexts = {task.record.context_id for task in ended if task.record.context_id is not None}
        applied = await self._commit(seen, sorted(contexts)[: self._listing.at_once])
        self.ended_lately.extend(task.record.id for task in ended)
        await self._write_contexts(contexts, applied.recent)
        await self._settler.settle_leftovers(ended)
        await self._broker.expire_ended(task.record.id for task in ended)
        self._look(applied.contradicted)
        self.applied += len(seen.projected)
        return seen.streamless

    async def _fetch(self, notices: Sequence[Notice]) -> _Seen:
        found = await self._broker.fetch([notice.task_id for notice in notices])
        self._fetching.learn(len(found), sum(ends.size_bytes for ends in found))
        seen = _Seen([], [])
        for notice, ends in zip(notices, found, strict=True):
            if ends.problem is not None:
                log.error("%s: task %s has no stream but something else: %s", MalformedEntry.code, ends.task_id, ends.problem)
            elif ends.first is None or ends.top is None:
                seen.streamless.append(notice)
            else:
                projected = project(notice, ends.first, ends.top)
                if projected.problem is not None:
                    log.error("%s: task %s: %s", MalformedEntry.code, ends.task_id, projected.problem)
                seen.projected.append((projected, ends))
        return seen

    async def _commit(self, seen: _Seen, contexts: Sequence[str]) -> Applied:
        now_ms = self._clock.now_ms()
        batch = [Turns(projected.record, projected.message, projected.reply) for projected, _ in seen.projected]
        gone = [lost(notice, now_ms) for notice in seen.streamless if notice.gone_agent is not None]
        applied = Applied(frozenset(), frozenset())
        if batch or gone:
            try:
                applied = await self._store.apply(batch, gone, contexts)
            except DatabaseRefused:
                log.warning("a batch of %d tasks was refused and is applied one by one", len(batch) + len(gone))
                applied = await self._commit_one_by_one(batch, gone)
        for projected, _ in seen.projected:
            if projected.record.id in applied.usurped and projected.record.error != FailureCode.TASK_ID_TAKEN:
                log.error(
                    "%s: task %s ran to its end under an id that an older task has: it is neither recorded nor charged",
                    FailureCode.TASK_ID_TAKEN, projected.record.id,
                )  # fmt: skip
        return applied

    async def _commit_one_by_one(self, batch: Sequence[Turns], gone: Sequence[TaskRecord]) -> Applied:
        each: list[Applied] = []
        for turns, record in [*((turns, None) for turns in batch), *((None, record) for record in gone)]:
            try:
                each.append(await self._store.apply([turns] if turns else [], [record] if record else []))
            except DatabaseRefused as error:
                log.error("task %s is not recorded: %s", (turns.record if turns else record).id, error)  # type: ignore[union-attr]
        return Applied(
            ended=frozenset(chain.from_iterable(applied.ended for applied in each)),
            contradicted=frozenset(chain.from_iterable(applied.contradicted for applied in each)),
            usurped=frozenset(chain.from_iterable(applied.usurped for applied in each)),
        )

    async def _write_contexts(self, context_ids: set[str], recent: Sequence[RecentMessages]) -> None:
        """Writes what came with the commit, then the rest."""
        wanted = sorted(context_ids.difference(context.context_id for context in recent))
        await self._list(recent)
        while wanted:
            batch = wanted[: self._listing.of(len(wanted))]
            await self._list(await self._store.recent_messages(batch))
            del wanted[: len(batch)]

    async def _list(self, recent: Sequence[RecentMessages]) -> None:
        self._listing.learn(len(recent), sum(context.size_bytes for context in recent))
        await self._broker.write_contexts(recent)
