"""What the router makes of streams and rings that were lost or went back (rule P14)."""

from __future__ import annotations

from typing import Any

import pytest

from skillstream_router import Router
from skillstream_router.broker import RouterBroker
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import START
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .conftest import QUIET, REAPING
from .eventually import eventually
from .feed import NOW_MS, Feed, final_of, ids
from .ledger_file import LedgerFile


async def recorded(settings: Settings, feed: Feed) -> None:
    """Has all rings projected by a router that does nothing else."""
    async with Router(settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")


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
