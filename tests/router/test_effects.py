"""What must happen exactly once, on a real broker and a real database file."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from skillstream_router import Router
from skillstream_schemas.settings import Settings
from tests.support.processes import START_S, Process

from .conftest import QUIET
from .eventually import eventually
from .feed import NOW_MS, Feed
from .ledger_file import LedgerFile

PRICE = 50_000
SHARES = {"payer:acme": -PRICE, "agent:poet": 47_500, "platform": 2_500}


async def test_a_completed_task_has_its_state_history_and_payment(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, outside: Any
) -> None:
    feed.ended("t1", payer="acme", price_micros=PRICE, context_id="chat", text="roses")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    row = ledger_file.task("t1")
    assert (row["state"], row["agent"], row["skill"], row["attempt"], row["last_event_id"]) == (
        "completed", "poet", "rhyme", 1, "1-2",
    )  # fmt: skip
    assert row["submitted_at"] == NOW_MS
    assert row["opened_at"] >= NOW_MS - 60_000
    assert row["finished_at"] == NOW_MS + 5
    assert ledger_file.balances() == SHARES
    assert ledger_file.rows("SELECT context_id, role, text FROM messages ORDER BY id") == [
        ("chat", "user", "to t1"),
        ("chat", "agent", "roses"),
    ]
    listed = [json.loads(text) for text in outside.lrange(feed.keys.context_messages("chat"), 0, -1)]
    assert [(turn["role"], turn["text"], turn["task_id"]) for turn in listed] == [
        ("user", "to t1", "t1"),
        ("agent", "roses", "t1"),
    ]


@pytest.mark.guarantee("G7", "G16")
async def test_rings_delivered_again_change_nothing(router_settings: Settings, feed: Feed, ledger_file: LedgerFile) -> None:
    feed.ended("t1", payer="acme", price_micros=PRICE, context_id="chat")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "the first rings are gone")
        before = ledger_file.rows("SELECT * FROM tasks, messages, transfers, postings")
        for kind in ("final", "opened", "submitted", "final"):
            feed.ring("t1", kind)
        await eventually(lambda: feed.rings_left() == 0, "the repeated rings are gone")
    assert ledger_file.rows("SELECT * FROM tasks, messages, transfers, postings") == before
    assert len(before) == 1 * 2 * 2 * 4
    assert ledger_file.balances() == SHARES


@pytest.mark.guarantee("G7", "G16")
async def test_two_routers_on_the_same_rings_charge_once(router_settings: Settings, feed: Feed, ledger_file: LedgerFile) -> None:
    tasks = [f"t{number:03d}" for number in range(150)]
    async with Router(router_settings, pace=QUIET), Router(router_settings, pace=QUIET):
        for task_id in tasks:
            feed.submitted(task_id, payer="acme", price_micros=PRICE, context_id="chat")
            feed.opened(task_id)
            feed.final(task_id)
            feed.ring(task_id, "final")
            feed.ring(task_id, "opened")
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert ledger_file.rows("SELECT state, count(*) FROM tasks GROUP BY state") == [("completed", len(tasks))]
    assert ledger_file.balances() == {account: amount * len(tasks) for account, amount in SHARES.items()}
    assert ledger_file.rows("SELECT count(*), count(DISTINCT task_id) FROM messages") == [(2 * len(tasks), len(tasks))]


@pytest.fixture
def no_acknowledging(outside: Any, router_settings: Settings) -> Iterator[Settings]:
    """Settings of a router whose user may do everything but XACK."""
    outside.execute_command("ACL", "SETUSER", "stuck", "on", ">pw", "~*", "&*", "+@all", "-xack")
    url = router_settings.redis_url.replace("redis://", "redis://stuck:pw@")
    yield router_settings.changed(redis_url=url)
    outside.execute_command("ACL", "DELUSER", "stuck")


@pytest.mark.guarantee("G7", "G16")
async def test_a_router_killed_between_commit_and_acknowledgement_is_carried_on_by_the_next(
    router_settings: Settings, no_acknowledging: Settings, feed: Feed, ledger_file: LedgerFile
) -> None:
    feed.ended("t1", payer="acme", price_micros=PRICE, context_id="chat")
    arguments = ["router", "--redis", no_acknowledging.redis_url, "--database", no_acknowledging.database_url]
    with Process(*arguments, env={"SKILLSTREAM_SHARDS": str(no_acknowledging.shards)}) as router:
        await eventually(lambda: ledger_file.state("t1") == "completed", "the first router commits", START_S)
        router.send(signal.SIGKILL)
        assert await asyncio.to_thread(router.wait) == -signal.SIGKILL
    assert feed.pending() == feed.rings_left() == 3
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "the next router takes the rings over")
        assert feed.pending() == 0
    assert ledger_file.balances() == SHARES
    assert ledger_file.rows("SELECT role FROM messages ORDER BY id") == [("user",), ("agent",)]


@pytest.mark.guarantee("G16")
@pytest.mark.parametrize("state", ["failed", "canceled", "input-required"])
async def test_only_completed_tasks_are_charged(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, state: str
) -> None:
    feed.ended("t1", state=state, payer="acme", price_micros=PRICE)
    feed.ended("t2", payer="acme", price_micros=0)
    feed.ended("t3", price_micros=PRICE)
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert ledger_file.state("t1") == state
    assert (ledger_file.state("t2"), ledger_file.state("t3")) == ("completed", "completed")
    assert ledger_file.rows("SELECT * FROM transfers") == []


@pytest.mark.guarantee("G15")
async def test_a_final_in_the_database_shortens_the_life_of_its_keys(router_settings: Settings, feed: Feed, outside: Any) -> None:
    feed.submitted("open")
    feed.ended("done")
    for task_id in ("open", "done"):
        outside.set(feed.keys.cancel(task_id), "why", ex=7 * 86_400)
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert 86_300 < outside.ttl(feed.keys.events("done")) <= 86_400
    assert 86_300 < outside.ttl(feed.keys.cancel("done")) <= 86_400
    assert outside.ttl(feed.keys.events("open")) > 6 * 86_400
    assert outside.ttl(feed.keys.cancel("open")) > 6 * 86_400
