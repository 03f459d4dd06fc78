"""Every task gets its final, whatever died (rules P12 and P14)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillstream.broker import Broker
from skillstream_router import Router
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings
from tests.support.submissions import submission_of

from .conftest import REAPING, MovedClock
from .eventually import eventually
from .feed import NOW_MS, Feed, final_of, ids
from .ledger_file import LedgerFile

MINUTE_MS = 60_000
DAY_MS = 86_400_000


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
    await broker.submit(submission_of("queued", TaskRequest(agent="poet", skill="rhyme", message="hi"), delay_ms=60_000))
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
