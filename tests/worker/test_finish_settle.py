"""Finals and settlements (rules P6, P7): one final, nothing behind it, and no job leaves the queue before it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import pytest

from skillstream.broker import Settlement, Submitted
from skillstream.clock import Clock
from skillstream.closing import Verdict, close_from_outside
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.ids import EventId
from skillstream_schemas.state import TaskState
from skillstream_worker.answers import Loss
from skillstream_worker.broker import Finish, Lease
from skillstream_worker.chunking import Chunking
from skillstream_worker.publication import Publication
from tests.client.bounds import soon, until
from tests.support.protocol_bench import AGENT, FINAL_FIELDS, ProtocolBench, a_request
from tests.support.submissions import submission_of

TASK = "t1"
LAST, FINAL = EventId(1, 1), EventId(1, 2)


async def publication_of(bench: ProtocolBench, lease: Lease, attempt: int = 1) -> Publication:
    broker = await bench.broker(lease.worker)
    return Publication(broker, lease, attempt, chunking=Chunking(), clock=Clock(), on_loss=lambda loss: None)


@pytest.mark.guarantee("G1")
async def test_a_final_stands_behind_the_last_entry_and_rings(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    bench.outside.pexpire(bench.keys.events(TASK), 60_000)
    broker = await bench.broker()
    finish = await broker.finish(lease, LAST, FINAL_FIELDS)
    event_id, fields = bench.entries(TASK)[-1]
    assert event_id == "1-2"
    assert list(fields.items()) == [*zip(FINAL_FIELDS[::2], FINAL_FIELDS[1::2], strict=True), ("at", str(finish.at))]
    assert bench.rings(TASK)[-1] == {"kind": "final"}
    assert bench.outside.pttl(bench.keys.events(TASK)) > 60_000


@pytest.mark.guarantee("G1", "G2")
async def test_a_final_repeated_after_a_lost_answer_is_there_once(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    broker = await bench.broker()
    answers = [await broker.finish(lease, LAST, FINAL_FIELDS) for _ in range(3)]
    assert answers == [Finish(int(bench.entries(TASK)[-1][1]["at"]))] * 3
    assert bench.ids(TASK) == ["0-1", "1-1", "1-2"]
    assert [ring["kind"] for ring in bench.rings(TASK)] == ["submitted", "opened", "final"]


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
async def test_a_final_has_the_time_of_the_broker_whatever_its_worker_takes_for_it(
    bench: ProtocolBench, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    lease, _ = await bench.opened(TASK)
    publication = await publication_of(bench, lease)
    monkeypatch.setattr(Clock, "now_ms", lambda _clock: time.time_ns() // 1_000_000 + ahead_ms)
    publication.add_text("said")
    before_ms = broker_ms(bench)
    at_ms = await soon(publication.finish(FINAL_FIELDS))
    (said, ended) = (int(fields["at"]) for _, fields in bench.entries(TASK)[-2:])
    assert abs(said - before_ms) > 3_000_000
    assert before_ms <= ended <= broker_ms(bench)
    assert at_ms == ended


def broker_ms(bench: ProtocolBench) -> int:
    """The broker's time (unix ms)."""
    seconds, micros = cast(Any, bench.outside.time())
    return int(seconds * 1000 + micros // 1000)


@pytest.mark.guarantee("G4")
async def test_an_attempt_that_was_fenced_writes_no_final(bench: ProtocolBench) -> None:
    old, _ = await bench.opened(TASK)
    bench.lapse(TASK)
    await bench.opened_by(await bench.claimed(TASK, "w2"))
    before = bench.entries(TASK)
    publication = await publication_of(bench, old)
    assert await publication.finish(FINAL_FIELDS) is None
    assert publication.loss is Loss.FENCED
    assert bench.entries(TASK) == before
    assert "final" not in [ring["kind"] for ring in bench.rings(TASK)]


async def test_no_final_without_a_stream(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    bench.outside.delete(bench.keys.events(TASK))
    publication = await publication_of(bench, lease)
    assert await publication.finish(FINAL_FIELDS) is None
    assert publication.loss is Loss.GONE
    assert bench.entries(TASK) == []


@pytest.mark.guarantee("G3")
async def test_no_final_over_entries_that_the_broker_lost(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    broker = await bench.broker()
    assert await broker.finish(lease, EventId(1, 4), FINAL_FIELDS) == Finish(None, LAST)
    assert bench.ids(TASK) == ["0-1", "1-1"]


@pytest.mark.guarantee("G8")
async def test_an_entry_of_another_under_the_id_of_the_final_is_no_final(bench: ProtocolBench) -> None:
    """After a failover another worker may have opened an attempt of the same number: its entry ends nothing."""
    lease, _ = await bench.opened(TASK)
    publication = await publication_of(bench, lease)
    bench.outside.delete(bench.keys.events(TASK))
    bench.add(TASK, "0-1", state="submitted")
    bench.add(TASK, "1-1", state="working", worker="w2", claim=lease.claim + 1, strikes=1)
    bench.add(TASK, "1-2", type="chunk", text="of another")
    bench.outside.expire(bench.keys.events(TASK), 60)
    before = bench.entries(TASK)
    assert await publication.finish(FINAL_FIELDS) is None
    assert publication.loss is Loss.WENT_BACK
    assert bench.entries(TASK) == before


@pytest.mark.guarantee("G2")
async def test_nothing_follows_a_final(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    broker = await bench.broker()
    publication = await publication_of(bench, lease)
    await broker.finish(lease, LAST, FINAL_FIELDS)
    before = bench.entries(TASK)
    publication.add_text("late")
    with contextlib.suppress(Exception):
        await soon(publication.flush())
    verdict = Verdict(TaskState.FAILED, "late", "late")
    assert (await close_from_outside(broker, TASK, verdict, "closer")).id == FINAL
    await broker.request_cancel(TASK, "late")
    assert await broker.submit(submission_of(TASK, a_request())) == Submitted(a_request(), ended=True)
    bench.lapse(TASK)
    await broker.open_attempt(await bench.claimed(TASK, "w2"), None)
    assert await broker.finish(lease, FINAL, FINAL_FIELDS) == Finish(None, FINAL)
    assert bench.entries(TASK) == before


@pytest.mark.guarantee("G8")
@pytest.mark.parametrize("ending", ["finish", "close"])
async def test_final_and_ring_appear_at_once(bench: ProtocolBench, ending: str) -> None:
    """Stream and inbox read in one transaction, over and over, while tasks end: never one without the other."""
    names = [f"t{number}" for number in range(100)]
    leases = {task_id: (await bench.opened(task_id))[0] for task_id in names}
    broker = await bench.broker()

    async def finish(task_id: str) -> None:
        await broker.finish(leases[task_id], LAST, FINAL_FIELDS)

    async def close(task_id: str) -> None:
        await close_from_outside(broker, task_id, Verdict(TaskState.FAILED, "enough", "enough"), "closer")

    end: Callable[[str], Awaitable[None]] = finish if ending == "finish" else close
    seen: list[int] = []

    def watch() -> None:
        while not seen or seen[-1] < len(names):
            seen.append(ended_at_once(bench, names))

    watching = asyncio.create_task(asyncio.to_thread(watch))
    for number, task_id in enumerate(names):
        if number % 10 == 0:
            await until(partial(_goes_on, seen, len(seen)))  # the watcher's thread has its turn too
        await end(task_id)
    await soon(watching)
    assert len(set(seen)) >= len(names) // 10, "too little was seen while the tasks ended"


def _goes_on(seen: list[int], looks: int) -> bool:
    """True once the watcher has begun and ended another look."""
    return len(seen) > looks + 1


def ended_at_once(bench: ProtocolBench, names: list[str]) -> int:
    """How many tasks have ended, by one look at everything; fails where final and ring disagree."""
    with bench.outside.pipeline(transaction=True) as looks:
        for task_id in names:
            looks.xrevrange(bench.keys.events(task_id), count=1)
        for shard in range(bench.settings.shards):
            looks.xrange(bench.keys.inbox(shard))
        replies = looks.execute()
    tops, inboxes = replies[: len(names)], replies[len(names) :]
    ended = {task_id for task_id, top in zip(names, tops, strict=True) if top[0][1]["type"] == "final"}
    rung = {fields["task"] for inbox in inboxes for _, fields in inbox if fields["kind"] == "final"}
    assert ended == rung
    return len(ended)


@pytest.mark.guarantee("G8")
async def test_a_settlement_takes_everything_of_the_job(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK)
    await bench.submitted("t2")
    broker = await bench.broker()
    await broker.finish(lease, LAST, FINAL_FIELDS)
    await broker.settle(AGENT, [Settlement(TASK, b"\x81\xa1a\x01"), Settlement("never there")])
    member = arq_keys.job_id(AGENT, TASK)
    assert list(bench.queued()) == [arq_keys.job_id(AGENT, "t2")]
    assert bench.outside.exists(arq_keys.job(member), arq_keys.in_progress(member), arq_keys.retry(member)) == 0
    assert bench.outside.strlen(arq_keys.result(member)) == 4
    assert bench.outside.pttl(arq_keys.result(member)) > 0
    assert bench.outside.exists(arq_keys.result(arq_keys.job_id(AGENT, "never there"))) == 0
    assert bench.ids(TASK) == ["0-1", "1-1", "1-2"], "a settlement leaves the stream alone"


async def test_a_settlement_asks_for_no_owner_and_may_be_repeated(bench: ProtocolBench) -> None:
    lease, _ = await bench.opened(TASK, "w1")
    await (await bench.broker("w1")).finish(lease, LAST, FINAL_FIELDS)
    other = await bench.broker("w2")
    await other.settle(AGENT, [Settlement(TASK)])
    await other.settle(AGENT, [Settlement(TASK)])
    assert bench.queued() == {}
    assert bench.lease_value(TASK) is None
