"""Settling what ended without being settled: a worker died between its final and the end of its job (rule P7)."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from skillstream.broker import Settlement
from skillstream_schemas import job as arq_job
from skillstream_schemas.errors import BrokerRefused, MalformedJob, SkillstreamError
from skillstream_schemas.event import FinalEvent, agent_metadata
from skillstream_schemas.ids import START

from .broker import RouterBroker
from .projection import RawEntry
from .store import TaskRecord

log = logging.getLogger(__name__)
_BATCH = 100


class Ended(NamedTuple):
    """An ended task: its row, its text, and its final as it stands on the stream, None where the stream is gone."""

    record: TaskRecord
    text: str
    final: RawEntry | None = None

    def final_fields(self) -> Mapping[str, str]:
        """The final's fields, as on the stream."""
        if self.final is not None:
            try:
                return self.final.strict_fields()
            except SkillstreamError:
                pass  # the row has what could be read of it
        return final_of_record(self.record, self.text).to_fields()


def final_of_record(record: TaskRecord, text: str) -> FinalEvent:
    """The final event of an ended task as the database has it; a stream gives it its id."""
    nested = {name: json.loads(getattr(record, name) or "null") for name in ("data", "metadata", "usage")}
    nested["metadata"] = nested["metadata"] or agent_metadata(record.agent)
    return FinalEvent(
        id=START,
        at=record.finished_at or 0,
        state=record.state,
        text=text,
        error=record.error,
        reason=record.reason,
        chunks=0,
        **nested,
    )


class Settler:
    """Responsible for taking jobs of ended tasks off their queues, where somebody left them there."""

    def __init__(self, broker: RouterBroker) -> None:
        self._broker = broker

    async def settle_leftovers(self, ended: Sequence[Ended]) -> None:
        """Settles what is still queued of these; raises BrokerUnavailable."""
        by_agent: dict[str, list[Ended]] = defaultdict(list)
        for task in ended:
            by_agent[task.record.agent].append(task)
        for agent, tasks in by_agent.items():
            try:
                await self._settle(agent, {task.record.id: task for task in tasks})
            except BrokerRefused as error:
                log.error("jobs of %s stay on their queue: %s", agent, error)

    async def _settle(self, agent: str, tasks: Mapping[str, Ended]) -> None:
        left = await self._broker.queued_jobs(agent, list(tasks))
        settlements = [Settlement(task_id, _stock_result(tasks[task_id], payload)) for task_id, payload in left.items()]
        for start in range(0, len(settlements), _BATCH):
            await self._broker.settle(agent, settlements[start : start + _BATCH])


def _stock_result(ended: Ended, payload: bytes | None) -> bytes | None:
    """What arq keeps for a stock client that waits; None for a job of ours."""
    if payload is None:
        return None
    try:
        job = arq_job.read_job(payload)
    except MalformedJob:
        return None
    if not job.is_stock:
        return None
    record = ended.record
    return arq_job.pack_result(
        job,
        record.agent,
        record.id,
        attempt=record.attempt,
        final=ended.final_fields(),
        started_ms=record.opened_at or record.submitted_at,
        finished_ms=record.finished_at or 0,
    )
