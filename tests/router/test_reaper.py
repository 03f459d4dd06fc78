"""Every task gets its final, whatever died (rules P12 and P14)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillstream.broker import Broker
from skillstream_router import Router
from skillstream_router.broker import RouterBroker
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import START
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .conftest import QUIET, REAPING, MovedClock
from .eventually import eventually
from .feed import NOW_MS, Feed
from .ledger_file import LedgerFile

MINUTE_MS = 60_000
DAY_MS = 86_400_000


async def recorded(settings: Settings, feed: Feed) -> None:
    """Has all rings projected by a router that does nothing else."""
    async with Router(settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")


def final_of(feed: Feed, task_id: str) -> dict[str, str]:
    """The final of a task, {} where it has none."""
    entries = feed.stream(task_id)
    return entries[-1][1] if entries and entries[-1][1]["type"] == "final" else {}


def ids(feed: Feed, task_id: str) -> list[str]:
    return [entry_id for entry_id, _ in feed.stream(task_id)]


@pytest.mark.guarantee("G1", "G6")
async def test_a_submission_without_a_job_is_enqueued_after_30_s(
    router_settings: Settings, feed: Feed, clock: MovedClock, outside: Any
) -> None:
    feed.submitted("half")
    feed.submitted("fresh", at=NOW_MS + DAY_MS)
    async with Router(router_settings, clock=clock, pace=REAPING):
        clock.ahead_ms = MINUTE_MS
        await eventually(lambda: feed.is_queued("half"), "the job is queued")
    member = arq_keys.job_id("poet", "half")
    assert outside.exists(arq_keys.job(member)) == 1
    assert outside.lrange(feed.keys.wake("poet"), 0, -1)[0] == member
    assert not feed.is_queued("fresh")
    assert ids(feed, "half") == ["0-1"]
    feed.no_jobs("half")


@pytest.mark.guarantee("G1")
async def test_an_open_attempt_without_a_member_on_the_queue_is_enqueued(
    router_settings: Settings, feed: Feed, clock: MovedClock
) -> None:
    feed.submitted("lost")
    feed.opened("lost")
    feed.submitted("running")
    feed.opened("running")
    feed.job("running", owned=True)
    async with Router(router_settings, clock=clock, pace=REAPING):
        await eventually(lambda: feed.is_queued("lost"), "the job is queued")
    assert ids(feed, "lost") == ["0-1", "1-1"]
    feed.no_jobs("lost", "running")


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("opened", [False, True])
async def test_a_deadline_that_passed_without_a_worker_ends_the_task(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, opened: bool
) -> None:
    feed.submitted("late", deadline=NOW_MS - 1, payer="acme", price_micros=9)
    feed.job("late")
    if opened:
        feed.opened("late")
        feed.entry("late", "1-2", {"type": "chunk", "text": "so far", "at": NOW_MS})
    feed.submitted("later", deadline=NOW_MS + DAY_MS)
    feed.submitted("held", deadline=NOW_MS - 1)
    feed.job("held", owned=True)
    async with Router(router_settings, pace=REAPING):
        await eventually(lambda: ledger_file.state("late") == "failed", "the task is failed in the database")
        await eventually(lambda: not feed.is_queued("late"), "its job is settled")
    final = final_of(feed, "late")
    assert (final["state"], final["error"], final["text"]) == ("failed", "deadline_exceeded", "so far" if opened else "")
    assert (ledger_file.state("later"), ledger_file.state("held")) == ("submitted", "submitted")
    assert ledger_file.rows("SELECT * FROM transfers") == []
    feed.no_jobs("held", "later")


@pytest.mark.guarantee("G1", "G9")
async def test_a_cancellation_that_nobody_acts_on_is_carried_out(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, clock: MovedClock
) -> None:
    for task_id in ("dead", "held"):
        feed.submitted(task_id)
        feed.opened(task_id)
        feed.entry(task_id, "1-2", {"type": "chunk", "text": "half a po", "at": NOW_MS})
        feed.job(task_id, owned=task_id == "held")
    async with Router(router_settings, clock=clock, pace=REAPING):
        broker = await Broker(router_settings).open()
        for task_id in ("dead", "held"):
            await broker.request_cancel(task_id, "user left")
        await broker.close()
        await eventually(lambda: ledger_file.task("held").get("cancel_requested_at"), "the cancellation is recorded")
        assert final_of(feed, "dead") == {}
        clock.ahead_ms = int((router_settings.lease_s + router_settings.grace_s) * 1000) + MINUTE_MS
        await eventually(lambda: ledger_file.state("dead") == "canceled", "the task is canceled in the database")
        await eventually(lambda: not feed.is_queued("dead"), "its job is settled")
    final = final_of(feed, "dead")
    assert (final["state"], final["reason"], final["text"]) == ("canceled", "user left", "half a po")
    assert feed.stream("dead")[-2][1]["resume_from"] == str(len("half a po"))
    assert final_of(feed, "held") == {}
    feed.no_jobs("held")


@pytest.mark.guarantee("G7")
async def test_a_final_whose_ring_was_lost_is_projected(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    feed.submitted("t1", payer="acme", price_micros=50_000)
    feed.opened("t1")
    feed.job("t1")
    await recorded(router_settings, feed)
    feed.final("t1")
    outside.delete(feed.keys.inbox_of("t1"))
    async with Router(router_settings, pace=REAPING):
        await eventually(lambda: ledger_file.state("t1") == "completed", "the final is in the database")
        await eventually(lambda: not feed.is_queued("t1"), "its job is settled")
        await eventually(lambda: outside.ttl(feed.keys.events("t1")) <= 86_400, "its stream expires sooner")
    assert ledger_file.balances()["payer:acme"] == -50_000


@pytest.mark.guarantee("G1", "G7")
async def test_a_stream_that_went_back_behind_a_recorded_final_is_closed_with_it(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    feed.ended("t1", payer="acme", price_micros=50_000, context_id="chat", text="the poem")
    await recorded(router_settings, feed)
    # a failover to a replica that had neither the final nor the settlement; a worker starts anew
    outside.delete(feed.keys.events("t1"))
    feed.submitted("t1", payer="acme", price_micros=50_000, context_id="chat")
    feed.opened("t1")
    feed.entry("t1", "1-2", {"type": "chunk", "text": "another po", "at": NOW_MS})
    feed.job("t1")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: final_of(feed, "t1"), "the stream has the final again")
        await eventually(lambda: not feed.is_queued("t1"), "its job is settled")
    final = final_of(feed, "t1")
    assert (final["state"], final["text"], final["chunks"]) == ("completed", "the poem", "0")
    assert "resume_from" not in feed.stream("t1")[-2][1]
    assert ledger_file.balances()["payer:acme"] == -50_000
    assert ledger_file.rows("SELECT count(*) FROM messages") == [(2,)]


@pytest.mark.guarantee("G1")
async def test_a_stream_that_vanished_before_its_final_is_made_again_and_ends_as_lost(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    feed.submitted("t1", payer="acme", price_micros=50_000, metadata='{"k":1}')
    feed.opened("t1")
    feed.job("t1")
    await recorded(router_settings, feed)
    submitted_at = ledger_file.task("t1")["submitted_at"]
    outside.delete(feed.keys.events("t1"))
    async with Router(router_settings, pace=REAPING):
        await eventually(lambda: ledger_file.state("t1") == "failed", "the task is failed in the database")
        await eventually(lambda: not feed.is_queued("t1"), "its job is settled")
    (first_id, first), (opening_id, opening), (final_id, final) = feed.stream("t1")
    assert (first_id, opening_id, final_id) == ("0-1", "2-1", "2-2")  # behind the attempt that was known
    assert (first["message"], first["payer"], first["metadata"]) == ("to t1", "acme", '{"k":1}')
    assert opening["worker"] == "router"
    assert (final["state"], final["error"]) == ("failed", "stream_lost")
    assert ledger_file.task("t1")["error"] == "stream_lost"
    assert ledger_file.task("t1")["submitted_at"] == submitted_at
    assert ledger_file.rows("SELECT * FROM transfers") == []


@pytest.mark.guarantee("G1")
async def test_a_task_that_a_worker_found_gone_ends_as_lost_even_if_no_router_knew_it(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile
) -> None:
    feed.job("t1")
    feed.ring("t1", "gone", agent="poet")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: ledger_file.state("t1") == "failed", "the task is failed in the database")
        await eventually(lambda: not feed.is_queued("t1"), "its job is settled")
    assert final_of(feed, "t1")["error"] == "stream_lost"
    assert ids(feed, "t1") == ["0-1", "1-1", "1-2"]


@pytest.mark.guarantee("G2")
async def test_a_stream_that_is_there_is_not_ended_as_lost(router_settings: Settings, feed: Feed) -> None:
    feed.submitted("t1")
    before = feed.stream("t1")
    broker = RouterBroker(router_settings, "r1")
    await broker.open()
    request = TaskRequest(agent="poet", skill="rhyme", message="hi")
    final = FinalEvent(id=START, at=0, state=TaskState.FAILED, text="", metadata={}, error="stream_lost", chunks=0)
    assert await broker.end_lost("t1", request, final, attempt=1, submitted_at=1) is False
    await broker.close()
    assert feed.stream("t1") == before


async def test_a_job_that_came_back_after_the_stream_of_an_ended_task_expired_is_settled_and_runs_nothing(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    feed.ended("t1")
    await recorded(router_settings, feed)
    outside.delete(feed.keys.events("t1"))
    feed.job("t1")
    feed.ring("t1", "gone", agent="poet")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: not feed.is_queued("t1"), "its job is settled")
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert feed.stream("t1") == []
    assert ledger_file.state("t1") == "completed"


@pytest.mark.guarantee("G1", "G15")
@pytest.mark.parametrize("owned", [False, True])
async def test_what_is_not_final_an_hour_before_its_stream_would_go_is_expired(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any, owned: bool
) -> None:
    for task_id, left_s in (("old", 3_500), ("young", 3_700)):
        feed.submitted(task_id)
        feed.opened(task_id)
        feed.job(task_id, owned=owned)
        outside.expire(feed.keys.events(task_id), left_s)
    async with Router(router_settings, pace=REAPING):
        await eventually(lambda: ledger_file.state("old") == "failed", "the task is failed in the database")
        await eventually(lambda: not feed.is_queued("old"), "its job is settled")
    assert final_of(feed, "old")["error"] == "expired"
    assert ledger_file.state("young") == "working"
    feed.no_jobs("young")


@pytest.mark.guarantee("G1", "G13")
async def test_a_request_that_nobody_can_read_ends_as_failed(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, clock: MovedClock
) -> None:
    feed.submitted("t1", message=b"\xff")
    feed.job("t1")
    async with Router(router_settings, clock=clock, pace=REAPING):
        clock.ahead_ms = MINUTE_MS
        await eventually(lambda: ledger_file.state("t1") == "failed", "the task is failed in the database")
        await eventually(lambda: not feed.is_queued("t1"), "its job is settled")
    row = ledger_file.task("t1")
    assert (row["error"], row["reason"]) == ("malformed_request", "the request cannot be read")


@pytest.mark.guarantee("G1", "G13")
async def test_a_stream_with_a_hole_or_an_unreadable_chunk_can_be_ended(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    for task_id in ("hole", "noise"):
        feed.submitted(task_id, deadline=NOW_MS - 1)
        feed.opened(task_id)
    feed.entry("hole", "1-5", {"type": "chunk", "text": "x", "at": NOW_MS})
    feed.entry("noise", "1-2", {"type": "chunk", "text": b"\xff", "at": NOW_MS})
    async with Router(router_settings, pace=REAPING):
        for task_id in ("hole", "noise"):
            await eventually(lambda task_id=task_id: ledger_file.state(task_id) == "failed", "it is failed")  # type: ignore[misc]
            tops = outside.xrevrange(feed.keys.events(task_id), count=2)
            assert [entry_id for entry_id, _ in tops] == ["2-2", "2-1"]
            assert ledger_file.task(task_id)["error"] == "deadline_exceeded"


async def test_many_open_tasks_are_all_looked_at(router_settings: Settings, feed: Feed, ledger_file: LedgerFile) -> None:
    tasks = [f"t{number:03d}" for number in range(450)]
    for task_id in tasks:
        feed.submitted(task_id, deadline=NOW_MS - 1)
    async with Router(router_settings, pace=REAPING):
        count = "SELECT count(*) FROM tasks WHERE error = 'deadline_exceeded'"
        await eventually(lambda: ledger_file.rows(count) == [(len(tasks),)], "all are ended")
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert all(len(feed.stream(task_id)) == 3 for task_id in tasks)


async def test_a_live_task_is_left_alone(router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any) -> None:
    broker = await Broker(router_settings).open()
    await broker.submit("queued", TaskRequest(agent="poet", skill="rhyme", message="hi"))
    await broker.enqueue("poet", "queued", delay_ms=60_000)
    await broker.close()
    feed.submitted("running")
    feed.opened("running")
    feed.job("running", owned=True)
    feed.submitted("beacon", deadline=NOW_MS - 1)
    before = {task_id: feed.stream(task_id) for task_id in ("queued", "running")}
    member = arq_keys.job_id("poet", "queued")
    score = outside.zscore(arq_keys.queue("poet"), member)
    async with Router(router_settings, pace=REAPING):
        await eventually(lambda: ledger_file.state("beacon") == "failed", "a whole round was made")
    assert {task_id: feed.stream(task_id) for task_id in before} == before
    assert outside.zscore(arq_keys.queue("poet"), member) == score
    assert json.loads(ledger_file.task("queued")["request"])["message"] == "hi"
    feed.no_jobs("queued", "running")
