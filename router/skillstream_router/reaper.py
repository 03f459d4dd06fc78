"""Role: finds tasks that nobody ends and ends them, or brings them back on their way (rules P12, P14)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from skillstream.broker import Ending
from skillstream.clock import Clock
from skillstream.closing import Verdict, close_from_outside
from skillstream_schemas.errors import (
    BrokerUnavailable,
    DatabaseUnavailable,
    FailureCode,
    MalformedEntry,
    SkillstreamError,
    StreamGap,
    StreamLost,
    UnknownTask,
)
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import EventId
from skillstream_schemas.state import TaskState

from .broker import ROUTER, RouterBroker
from .diagnosis import Close, CloseAsRecorded, EndLost, Enqueue, Project, Remedy, Settle, diagnose
from .settling import Ended, Settler, final_of_record
from .sighting import Sighting
from .store import Store, TaskRecord

log = logging.getLogger(__name__)
_WORK = "looking at open tasks"


@dataclass(frozen=True, slots=True)
class ReapingPace:
    """How open tasks are looked at: all of them each `period_s`, `batch` at once, with `pause_s` between two batches."""

    period_s: float = 10.0
    batch: int = 200
    pause_s: float = 0.1


class Reaper:
    """Responsible for every task getting its final, whatever died.

    `project` applies tasks whose final is not in the database; it settles them as well. `ended_lately` are the tasks
    whose finals this router recorded last.
    """

    def __init__(
        self,
        broker: RouterBroker,
        store: Store,
        settler: Settler,
        clock: Clock,
        project: Callable[[Iterable[str]], Awaitable[None]],
        ended_lately: Iterable[str],
        pace: ReapingPace,
    ) -> None:
        self._broker = broker
        self._store = store
        self._settler = settler
        self._clock = clock
        self._project = project
        self._ended_lately = ended_lately
        self._connections_made = broker.pipeline.connections_made
        self._pace = pace
        self._asked: set[str] = set()
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Reaper asked={len(self._asked)} period_s={self._pace.period_s:g}>"

    def look(self, task_ids: Iterable[str]) -> None:
        """Has tasks looked at soon, ended ones too; ids that the database does not know are passed over."""
        self._asked.update(task_ids)
        if self._asked:
            self._wake.set()

    async def run(self) -> None:
        """Looks at what it is asked to at once, and at all open tasks each period, until it is cancelled."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            try:
                await self.look_at_asked()
                if loop.time() >= due_s:
                    await self.sweep()
                    due_s = loop.time() + self._pace.period_s
                self._broker.outage.over(_WORK)
            except (BrokerUnavailable, DatabaseUnavailable) as error:
                self._broker.outage.met(_WORK, error)
                due_s = loop.time() + self._pace.period_s
            except Exception:
                log.exception("looking at open tasks broke")
                due_s = loop.time() + self._pace.period_s
            await self._wait(due_s - loop.time())

    async def sweep(self) -> None:
        """Looks at all open tasks once, in batches."""
        self._look_behind_a_break()
        after = ""
        while page := await self._store.open_tasks(after, self._pace.batch):
            await self._treat(page)
            after = page[-1].id
            await asyncio.sleep(self._pace.pause_s)
            await self.look_at_asked()

    def _look_behind_a_break(self) -> None:
        """Has what ended lately looked at once more: the server behind a new connection may lack finals (rule P17)."""
        made = self._broker.pipeline.connections_made
        if made != self._connections_made:
            self.look(self._ended_lately)
        self._connections_made = made

    async def look_at_asked(self) -> None:
        """Looks at what it was asked to."""
        while self._asked:
            batch = sorted(self._asked)[: self._pace.batch]
            known = await self._store.tasks_by_id(batch)
            await self._treat(list(known.values()))
            self._asked.difference_update(batch)

    async def _wait(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(max(timeout_s, 0)):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()

    async def _treat(self, records: Sequence[TaskRecord]) -> None:
        if not records:
            return
        sightings = await self._broker.examine([(record.id, record.agent) for record in records])
        now_ms = self._clock.now_ms()
        to_project: list[str] = []
        for record, seen in zip(records, sightings, strict=True):
            remedy = diagnose(record, seen, now_ms, self._broker.settings)
            if isinstance(remedy, Project):
                to_project.append(record.id)
            elif remedy is not None:
                await self._apply(record, seen, remedy)
        if to_project:
            await self._project(to_project)

    async def _apply(self, record: TaskRecord, seen: Sighting, remedy: Remedy) -> None:
        log.info("task %s (%s): %s", record.id, record.state.value, remedy)
        try:
            match remedy:
                case Enqueue():
                    await self._broker.enqueue(record.agent, record.id)
                case Close(verdict):
                    await self._close(record, seen, verdict)
                case CloseAsRecorded():
                    final = final_of_record(record, await self._store.final_text(record.id))
                    await self._close_unread(record, seen, final)
                case EndLost():
                    await self._end_lost(record)
                case Settle():
                    text = await self._store.final_text(record.id)
                    await self._settler.settle_leftovers([Ended(record, text)])
                case Project():
                    raise AssertionError("projected in one batch")
        except (BrokerUnavailable, DatabaseUnavailable):
            raise
        except SkillstreamError as error:
            log.error("task %s stays as it is for now: %s", record.id, error)

    async def _close(self, record: TaskRecord, seen: Sighting, verdict: Verdict) -> None:
        # the final rings: its projection settles the job (P7)
        try:
            await close_from_outside(self._broker, record.id, verdict, ROUTER)
        except (MalformedEntry, StreamGap) as error:
            log.error("task %s ends without the text so far: %s", record.id, error)
            await self._close_unread(record, seen, verdict.final(record.agent))
        except (UnknownTask, StreamLost):
            self.look([record.id])

    async def _close_unread(self, record: TaskRecord, seen: Sighting, final: FinalEvent) -> None:
        """Ends a task with a text that owes nothing to its stream; where that went on, the next look sees to it."""
        assert seen.ends.top is not None
        await self._broker.close_task(record.id, Ending(final, EventId.parse(seen.ends.top.id), keep=None), ROUTER)

    async def _end_lost(self, record: TaskRecord) -> None:
        reason = "the broker lost the task's stream before it was done"
        verdict = Verdict(TaskState.FAILED, reason, FailureCode.STREAM_LOST)
        # ids behind those of the attempt that was known last: its worker may not have heard of the loss
        await self._broker.end_lost(
            record.id,
            record.original_request(),
            verdict.final(record.agent),
            attempt=record.attempt + 1,
            submitted_at=record.submitted_at,
        )
