"""A place to try the protocol's steps one by one: worker brokers by name, and the task as seen from outside."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import redis

from skillstream.clock import Clock
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.limits import Limits
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings
from skillstream_worker.answers import Loss
from skillstream_worker.broker import ClaimedJob, Lease, WorkerBroker
from skillstream_worker.chunking import Chunking
from skillstream_worker.openings import Opened
from skillstream_worker.publication import Publication
from tests.support.submissions import submission_of

AGENT = "echo"
TASK = "t1"
FINAL_FIELDS = ("type", "final", "state", "completed", "text", "", "metadata", "{}", "chunks", "0")
Fields = dict[str, str]


class ProtocolBench:
    """Responsible for the steps that come before the one under test, and for what is read from outside after it."""

    def __init__(self, outside: redis.Redis, settings: Settings) -> None:
        self.outside: Any = outside
        self.settings = settings
        self.keys = settings.keys
        self._brokers: dict[str, WorkerBroker] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for broker in self._brokers.values():
            await broker.close()
        for member in self.queued():
            self.outside.delete(arq_keys.in_progress(member))
        self.outside.delete(arq_keys.queue(AGENT))

    async def broker(self, name: str = "w1", settings: Settings | None = None) -> WorkerBroker:
        """The open broker of a worker; each name has one."""
        if name not in self._brokers:
            self._brokers[name] = await WorkerBroker(settings or self.settings, name).open()
        return self._brokers[name]

    async def submitted(self, *task_ids: str, delay_ms: int = 0, **changes: Any) -> None:
        """Submits and enqueues tasks."""
        broker = await self.broker()
        for task_id in task_ids:
            await broker.submit(submission_of(task_id, a_request(**changes), delay_ms=delay_ms))

    async def claimed(self, task_id: str, worker: str = "w1") -> Lease:
        """Claims a queued task."""
        broker = await self.broker(worker)
        won = (await broker.claim(AGENT, [task_id], 0)).won
        assert [job.task_id for job in won] == [task_id]
        return lease_of(won[0], worker)

    async def opened(self, task_id: str, worker: str = "w1", **changes: Any) -> tuple[Lease, int]:
        """Submits, claims and opens a task; returns the lease and the number of the attempt."""
        await self.submitted(task_id, **changes)
        lease = await self.claimed(task_id, worker)
        return lease, await self.opened_by(lease)

    async def opened_by(self, lease: Lease) -> int:
        """Opens the next attempt for a lease; returns its number."""
        opening = await (await self.broker(lease.worker)).open_attempt(lease, None)
        assert isinstance(opening, Opened), opening
        return opening.attempt

    def lapse(self, task_id: str) -> None:
        """Ends a lease as its TTL would, and makes the job due."""
        member = arq_keys.job_id(AGENT, task_id)
        self.outside.delete(arq_keys.in_progress(member))
        self.outside.zadd(arq_keys.queue(AGENT), {member: 0}, xx=True)

    def add(self, task_id: str, event_id: str, **fields: object) -> None:
        """Adds an entry as it stands."""
        written = {name: str(value) for name, value in {"type": "status", **fields, "at": 1}.items()}
        self.outside.xadd(self.keys.events(task_id), written, id=event_id)

    def entries(self, task_id: str) -> list[tuple[str, Fields]]:
        """The stream as it stands."""
        return cast(list[tuple[str, Fields]], self.outside.xrange(self.keys.events(task_id)))

    def ids(self, task_id: str) -> list[str]:
        """The ids on the stream."""
        return [event_id for event_id, _ in self.entries(task_id)]

    def texts(self, task_id: str) -> list[str]:
        """The texts of all chunks."""
        return [fields["text"] for _, fields in self.entries(task_id) if fields["type"] == "chunk"]

    def rings(self, task_id: str) -> list[Fields]:
        """The task's rings at its inbox, in order, without the task id."""
        rings = self.outside.xrange(self.keys.inbox_of(task_id))
        return [without_task(fields) for _, fields in rings if fields["task"] == task_id]

    def queued(self) -> dict[str, float]:
        """Members of the agent's queue and their scores."""
        return dict(self.outside.zrange(arq_keys.queue(AGENT), 0, -1, withscores=True))

    def lease_value(self, task_id: str) -> str | None:
        """What the lease's key holds."""
        return cast("str | None", self.outside.get(arq_keys.in_progress(arq_keys.job_id(AGENT, task_id))))

    def woken(self) -> list[str]:
        """Tokens on the wake list."""
        return cast(list[str], self.outside.lrange(self.keys.wake(AGENT), 0, -1))

    def server_ms(self) -> int:
        """The server's clock, unix ms."""
        seconds, micros = self.outside.time()
        return int(seconds * 1000 + micros // 1000)


def a_request(**changes: Any) -> TaskRequest:
    """A request to the agent of the bench."""
    values: dict[str, Any] = {"agent": AGENT, "skill": "say", "message": "hi"}
    return TaskRequest(**(values | changes))


def lease_of(job: ClaimedJob, worker: str) -> Lease:
    """The lease that a worker has on a job it won."""
    return Lease(AGENT, job.task_id, worker, job.claim)


def without_task(fields: Mapping[str, str]) -> Fields:
    """A ring's fields but the task id."""
    return {name: value for name, value in fields.items() if name != "task"}


def port_of(settings: Settings) -> int:
    """Where the server listens."""
    return int(settings.redis_url.removesuffix("/0").rpartition(":")[2])


def refusals(outside: Any, *kinds: str) -> int:
    """How many commands the server has refused with errors of these kinds, in this test or before."""
    counts = outside.info("errorstats")
    return sum(counts.get(f"errorstat_{kind}", {}).get("count", 0) for kind in kinds)


def is_dense(ids: list[str]) -> bool:
    """True where the stream holds a submission and one attempt without a hole."""
    return ids == ["0-1", *(f"1-{seq}" for seq in range(1, len(ids)))]


class Stage(NamedTuple):
    """An opened attempt, its publication, and the losses that were reported."""

    publication: Publication
    losses: list[Loss]


async def staged(
    bench: ProtocolBench,
    chunking: Chunking | None = None,
    *,
    task_id: str = TASK,
    kept: str = "",
    settings: Settings | None = None,
    **limits: int,
) -> Stage:
    """Opens a task; each yield is an entry unless `chunking` says otherwise. `settings` are the broker's."""
    settings = (settings or bench.settings).changed(limits=Limits(**limits))
    broker = await bench.broker("w1", settings)
    lease, attempt = await bench.opened(task_id)
    losses: list[Loss] = []
    chunking = chunking or Chunking.off()
    publication = Publication(broker, lease, attempt, chunking=chunking, clock=Clock(), kept=kept, on_loss=losses.append)
    return Stage(publication, losses)
