"""A conversation stands in the order in which its tasks ended, in whichever order routers recorded them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from itertools import count, permutations
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from skillstream.cli.app import build
from skillstream_router import Router
from skillstream_router.store import GatewayStore, Reports, Store, TaskRecord, Turns
from skillstream_router.store.reports import Message
from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .conftest import QUIET
from .eventually import eventually
from .feed import NOW_MS, Feed
from .ledger_file import LedgerFile

CONTEXTS = ("one", "two", "three")
TURNS = 40
KEPT = 20
RINGS_READ_AT_ONCE = 250
"""Of 16 inboxes, each."""


def turn(task_id: str, ended_at: int, *, context_id: str = "chat", submitted_at: int = 1) -> Turns:
    record = TaskRecord(
        id=task_id, state=TaskState.COMPLETED, agent="poet", skill="rhyme", submitted_at=submitted_at, attempt=1,
        last_event_id="1-2", context_id=context_id, finished_at=ended_at,
    )  # fmt: skip
    return Turns(record, f"ask {task_id}", f"say {task_id}")


def said(*task_ids: str) -> list[tuple[str, str]]:
    return [(role, task_id) for task_id in task_ids for role in ("user", "agent")]


def turns_of(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.task_id) for message in messages]


@pytest.fixture
def settings_of_file(ledger_file: LedgerFile) -> Settings:
    return Settings(database_url=ledger_file.url, context_messages=4)


@pytest.fixture
async def store(settings_of_file: Settings) -> AsyncIterator[Store]:
    opened = await Store(settings_of_file).open()
    yield opened
    await opened.close()


@pytest.fixture
async def pages(store: Store, settings_of_file: Settings) -> AsyncIterator[GatewayStore]:
    async with GatewayStore(settings_of_file) as opened:
        yield opened


async def listed(store: Store) -> tuple[int, list[tuple[str, str]]]:
    (recent,) = await store.recent_messages(["chat"])
    found = map(json.loads, recent.messages)
    return recent.version, [(message["role"], message["task_id"]) for message in found]


@pytest.mark.parametrize("routers", [1, 2])
async def test_a_backlog_of_many_inboxes_is_a_conversation_in_order(
    settings: Settings, outside: redis.Redis, ledger_file: LedgerFile, routers: int
) -> None:
    wide = settings.changed(database_url=ledger_file.url, shards=16, context_messages=KEPT)
    feed = Feed(outside, wide.keys)
    keep_back_every_other_inbox(feed)
    wanted: dict[str, list[tuple[str, str]]] = {name: [] for name in CONTEXTS}
    for number in range(TURNS):
        for name in CONTEXTS:
            task_id, submitted_at = f"{name}-{number:03}", NOW_MS - 60_000 + 10 * number
            feed.submitted(task_id, at=submitted_at, context_id=name)
            feed.opened(task_id)
            feed.final(task_id, at=submitted_at + 5)
            wanted[name] += said(task_id)
    async with AsyncExitStack() as stack:
        for _ in range(routers):
            await stack.enter_async_context(Router(wide, pace=QUIET))
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    outside_of_order = 0
    async with GatewayStore(wide) as pages, Reports(wide) as reports:
        for name in CONTEXTS:
            assert turns_of(await reports.history(name)) == wanted[name]
            assert await asyncio.to_thread(printed, ledger_file, name) == wanted[name]
            assert await read_in_pages(pages, name, limit=7) == wanted[name]
            on_broker: Any = outside.lrange(wide.keys.context_messages(name), 0, -1)
            found = [(message["role"], message["task_id"]) for message in map(json.loads, on_broker)]
            assert found == wanted[name][-KEPT:]
            rows = ledger_file.rows("SELECT role, task_id FROM messages WHERE context_id = ? ORDER BY id", name)
            outside_of_order += rows != wanted[name]
    assert outside_of_order == len(CONTEXTS), "they were recorded as they ended: nothing was put to the test"


def keep_back_every_other_inbox(feed: Feed) -> None:
    """So many rings of other tasks that the first read of these inboxes brings no others."""
    for shard in range(1, feed.keys.shard_count, 2):
        other = next(name for name in map("other-{}".format, count()) if feed.keys.shard(name) == shard)
        feed.ended(other)
        for _ in range(RINGS_READ_AT_ONCE):
            feed.ring(other, "opened")


def printed(ledger_file: LedgerFile, context_id: str) -> list[tuple[str, str]]:
    result = CliRunner().invoke(build()[0], ["history", context_id, "--json", "--database", ledger_file.url])
    assert result.exit_code == 0, result.stderr
    return [(line["role"], line["task_id"]) for line in map(json.loads, result.stdout.splitlines())]


async def read_in_pages(pages: GatewayStore, context_id: str, limit: int) -> list[tuple[str, str]]:
    found: list[Message] = []
    more = True
    while more:
        page, more = await pages.messages(context_id, found[-1].id if found else 0, limit)
        found += page
    return turns_of(found)


@pytest.mark.parametrize("recorded", list(permutations(("a", "b", "c"))))
async def test_the_order_is_the_same_whichever_turn_is_recorded_first(
    store: Store, pages: GatewayStore, recorded: tuple[str, ...]
) -> None:
    ended_at = {"a": 3000, "b": 3000, "c": 2000}
    for task_id in recorded:
        await store.apply([turn(task_id, ended_at[task_id])])
    assert await read_in_pages(pages, "chat", limit=1) == said("c", "a", "b")
    assert (await listed(store))[1] == said("a", "b")


async def test_turns_that_ended_at_once_stay_whole(store: Store, pages: GatewayStore) -> None:
    task_ids = [f"t{number:02}" for number in range(40)]
    shuffled = random.Random(7).sample(task_ids, len(task_ids))
    for some in (shuffled[:13], shuffled[13:14], shuffled[14:]):
        await store.apply([turn(task_id, 2000) for task_id in some])
    assert await read_in_pages(pages, "chat", limit=3) == said(*task_ids)


async def test_a_final_without_its_time_stands_where_its_task_was_submitted(store: Store, pages: GatewayStore) -> None:
    await store.apply([turn("b", 0, submitted_at=2500), turn("a", 2000), turn("c", 3000, submitted_at=2900)])
    assert await read_in_pages(pages, "chat", limit=10) == said("a", "b", "c")


async def test_a_late_turn_takes_its_place_in_the_list_and_raises_its_version(store: Store) -> None:
    await store.apply([turn("b", 2000), turn("d", 4000)])
    before, _ = await listed(store)
    await store.apply([turn("c", 3000)])
    after, found = await listed(store)
    assert (found, after > before) == (said("c", "d"), True)
    await store.apply([turn("a", 1000)])
    assert await listed(store) == (after, said("c", "d")), "what is older than the list changes nothing in it"
    await store.apply([turn("e", 5000)])
    version, found = await listed(store)
    assert (found, version > after) == (said("d", "e"), True)


async def test_a_page_goes_on_behind_a_message_whatever_is_recorded_before_it(store: Store, pages: GatewayStore) -> None:
    await store.apply([turn("b", 2000), turn("d", 4000), turn("f", 6000)])
    first, more = await pages.messages("chat", 0, 3)
    assert (turns_of(first), more) == ([*said("b"), ("user", "d")], True)
    await store.apply([turn("a", 1000), turn("c", 3000), turn("e", 5000)])
    second, _ = await pages.messages("chat", first[-1].id, 10)
    assert turns_of(second) == [("agent", "d"), *said("e", "f")]
    assert await read_in_pages(pages, "chat", limit=2) == said(*"abcdef")
    assert await pages.messages("chat", second[-1].id, 10) == ([], False)


async def test_a_page_behind_a_message_of_another_conversation_is_refused(store: Store, pages: GatewayStore) -> None:
    await store.apply([turn("a", 1000), turn("b", 2000, context_id="side")])
    ((other, *_), _) = await pages.messages("side", 0, 10)
    for after in (other.id, 99):
        with pytest.raises(InvalidRequest, match=f"context chat has no message {after} "):
            await pages.messages("chat", after, 10)


async def test_a_conversation_belongs_to_whose_task_was_the_first_to_end(store: Store, pages: GatewayStore) -> None:
    late, early = turn("late", 2000), turn("early", 1000)
    await store.apply([late._replace(record=late.record._replace(payer="second"))])
    await store.apply([early._replace(record=early.record._replace(payer="first"))])
    assert await pages.owner_of_context("chat") == "first"
