"""Rings reach the database whatever breaks, and bad ones stop nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skillstream_router import Router
from skillstream_router.app import RouterPace
from skillstream_router.broker import RouterBroker
from skillstream_router.inbox import Inbox, ReadingPace
from skillstream_router.projection import Ring
from skillstream_schemas.settings import Settings

from .conftest import QUIET
from .eventually import BOUND_S, eventually
from .feed import Feed
from .ledger_file import LedgerFile


@pytest.mark.guarantee("G13")
async def test_garbage_in_an_inbox_is_acknowledged_and_stops_nothing(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    inbox = feed.keys.inbox(0)
    for fields in (
        {"hello": "world"},
        {"task": "no/name", "kind": "final"},
        {"task": b"\xff\xfe", "kind": "final"},
        {"task": "x" * 129, "kind": "final"},
        {"task": "unheard-of", "kind": "celebrate"},
        {"task": "unheard-of", "kind": "gone", "agent": "{}"},
    ):
        outside.xadd(inbox, fields)
    feed.ended("t1")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
        assert feed.pending() == 0
    assert ledger_file.rows("SELECT id, state FROM tasks") == [("t1", "completed")]


@pytest.mark.guarantee("G13")
async def test_unreadable_streams_are_recorded_as_far_as_they_can_be_and_stop_nothing(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    feed.submitted("wrong-version", v=7)
    feed.submitted("not-utf8", message=b"\xff\xfe")
    feed.ended("bad-request", price_micros="much", payer="acme")
    feed.submitted("bad-final")
    feed.final("bad-final", "1-1", text=b"\xff")  # type: ignore[arg-type]
    feed.entry("foreign", "1700000000000-0", {"hello": "world"})
    feed.ring("foreign", "final")
    outside.set(feed.keys.events("a-string"), "surprise", ex=60)
    feed.ring("a-string", "final")
    feed.ended("good")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert dict(ledger_file.rows("SELECT id, state FROM tasks")) == {
        "wrong-version": "submitted",
        "not-utf8": "submitted",
        "bad-request": "completed",
        "bad-final": "failed",
        "foreign": "working",
        "good": "completed",
    }
    assert ledger_file.task("bad-final")["error"] == "malformed_entry"
    assert ledger_file.rows("SELECT * FROM transfers") == []


@pytest.mark.guarantee("G13")
async def test_a_task_that_the_database_refuses_does_not_keep_back_the_others(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile
) -> None:
    feed.ended("first")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: ledger_file.state("first") == "completed", "the tables are there")
        ledger_file.execute(
            "CREATE TRIGGER no_bad BEFORE INSERT ON tasks WHEN NEW.id = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        for task_id in ("a", "bad", "c"):
            feed.ended(task_id)
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert ledger_file.rows("SELECT id FROM tasks ORDER BY id") == [("a",), ("c",), ("first",)]


async def test_broken_connections_are_opened_again(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    async with Router(router_settings, pace=QUIET) as router:
        await router.until_reading()
        for number in range(3):
            outside.client_kill_filter(skipme=True, _type="normal")
            feed.ended(f"t{number}")
            await eventually(lambda number=number: ledger_file.state(f"t{number}") == "completed", "the ring arrives")  # type: ignore[misc]
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
        assert feed.pending() == 0


async def test_groups_are_made_again_after_the_broker_was_emptied(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    async with Router(router_settings, pace=QUIET) as router:
        await router.until_reading()
        outside.flushall()
        feed.ended("t1")
        await eventually(lambda: ledger_file.state("t1") == "completed", "the ring arrives")
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")


def give_rings(outside: Any, feed: Feed, router: str) -> None:
    """A router of this name was given the rings of an ended task, and acknowledged none."""
    inboxes = [feed.keys.inbox(shard) for shard in range(feed.keys.shard_count)]
    for inbox in inboxes:
        outside.xgroup_create(inbox, "router", id="0", mkstream=True)
    feed.ended("t1")
    assert outside.xreadgroup("router", router, dict.fromkeys(inboxes, ">"))


async def test_rings_of_a_router_that_died_are_taken_over(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    give_rings(outside, feed, "dead")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert ledger_file.state("t1") == "completed"


async def test_rings_that_this_router_was_given_in_an_answer_that_never_came_are_read_first(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    give_rings(outside, feed, "r1")
    patient = RouterPace(ReadingPace(block_s=0.2, take_over_s=3600), QUIET.reaping, QUIET.reconciling)
    async with Router(router_settings, name="r1", pace=patient):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert ledger_file.state("t1") == "completed"


async def test_rings_that_come_close_behind_each_other_are_handed_on_together(router_settings: Settings, feed: Feed) -> None:
    broker, rings = RouterBroker(router_settings, "r1"), asyncio.Queue[list[Ring]]()
    await broker.open()
    try:
        inbox = Inbox(broker, rings, ReadingPace(block_s=0.2, gather_s=1.5))
        reading = asyncio.ensure_future(inbox.run())
        await inbox.reading.wait()
        feed.submitted("t1")
        await eventually(lambda: feed.pending() == 1, "the first ring was read")
        feed.ring("t1", "final")
        batch = await asyncio.wait_for(rings.get(), BOUND_S)
        assert [(ring.task_id, ring.kind) for ring in batch] == [("t1", "submitted"), ("t1", "final")]
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    finally:
        await broker.close()


async def test_a_router_that_stops_leaves_nothing_behind_in_the_groups(
    router_settings: Settings, feed: Feed, outside: Any
) -> None:
    async with Router(router_settings, name="r1", pace=QUIET) as router:
        await router.until_reading()
        feed.ended("t1")
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
        inboxes = [feed.keys.inbox(shard) for shard in range(feed.keys.shard_count)]
        assert "r1" in [consumer["name"] for consumer in outside.xinfo_consumers(feed.keys.inbox_of("t1"), "router")]
    assert [outside.xinfo_consumers(inbox, "router") for inbox in inboxes] == [[]] * len(inboxes)


async def test_a_router_that_stops_under_load_leaves_no_ring_pending(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile
) -> None:
    for number in range(1500):
        feed.ended(f"t{number}")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: ledger_file.rows("SELECT 1 FROM tasks LIMIT 1"), "the router is at work")
    assert feed.pending() == 0
    (count,) = ledger_file.rows("SELECT count(*) FROM tasks WHERE state = 'completed'")
    assert count[0] * 3 >= 4500 - feed.rings_left() > 0


async def test_a_database_that_is_locked_holds_rings_back_and_loses_none(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile
) -> None:
    async with Router(router_settings, pace=QUIET) as router:
        await router.until_reading()
        with ledger_file.locked():
            feed.ended("t1")
            await eventually(lambda: feed.pending() == 3, "the rings are given to the router")
            assert feed.rings_left() == 3
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert ledger_file.state("t1") == "completed"
