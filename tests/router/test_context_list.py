"""The list of recent messages on the broker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skillstream_router import Router
from skillstream_router.broker import RouterBroker
from skillstream_router.store import RecentMessages
from skillstream_schemas.limits import KIB, Limits
from skillstream_schemas.request import HistoryMessage
from skillstream_schemas.settings import Settings

from .conftest import QUIET
from .eventually import eventually
from .feed import Feed


@pytest.fixture
async def broker(router_settings: Settings) -> AsyncIterator[RouterBroker]:
    opened = RouterBroker(router_settings, "r1")
    await opened.open()
    yield opened
    await opened.close()


def context(version: int, *texts: str) -> RecentMessages:
    messages = tuple(HistoryMessage(role="user", text=text).model_dump_json() for text in texts)
    return RecentMessages("chat", version, sum(map(len, texts)), messages)


def texts(outside: Any, feed: Feed) -> list[str]:
    return [json.loads(item)["text"] for item in outside.lrange(feed.keys.context_messages("chat"), 0, -1)]


@pytest.mark.guarantee("G7")
async def test_an_older_version_does_not_replace_a_newer_one(broker: RouterBroker, outside: Any, feed: Feed) -> None:
    await broker.write_contexts([context(9, "a", "b", "c"), context(8, "a", "b")])
    assert texts(outside, feed) == ["a", "b", "c"]
    await broker.write_contexts([context(10, "b", "c", "d")])
    assert texts(outside, feed) == ["b", "c", "d"]
    await broker.write_contexts([context(10, "b", "c", "d")])
    assert texts(outside, feed) == ["b", "c", "d"]
    assert 0 < outside.ttl(feed.keys.context_messages("chat")) <= 30 * 86_400
    assert 0 < outside.ttl(feed.keys.context_version("chat")) <= 30 * 86_400


async def test_the_scripts_are_brought_along_where_the_broker_forgot_them(broker: RouterBroker, outside: Any, feed: Feed) -> None:
    outside.script_flush()
    await broker.write_contexts([context(1, "a")])
    assert texts(outside, feed) == ["a"]


async def test_the_list_is_capped_in_messages_and_in_bytes(router_settings: Settings, feed: Feed, outside: Any) -> None:
    small = router_settings.changed(context_messages=4, limits=Limits(message_bytes=2 * KIB))
    for number in range(4):
        feed.ended(f"t{number}", context_id="chat", text=f"{number}")
        feed.ended(f"u{number}", context_id="long", text=f"{number}" * 900)
    async with Router(small, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert texts(outside, feed)[-1] == "3"
    assert outside.llen(feed.keys.context_messages("chat")) == 4
    long = [json.loads(item)["text"] for item in outside.lrange(feed.keys.context_messages("long"), 0, -1)]
    assert sum(map(len, long)) <= 2 * KIB
    assert long[-1] == "3" * 900


@pytest.mark.guarantee("G13")
async def test_a_key_of_another_type_in_the_way_stops_nothing(router_settings: Settings, feed: Feed, outside: Any) -> None:
    outside.rpush(feed.keys.context_version("chat"), "what")
    outside.expire(feed.keys.context_version("chat"), 60)
    feed.ended("t1", context_id="chat")
    feed.ended("t2", context_id="side")
    async with Router(router_settings, pace=QUIET):
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
    assert outside.llen(feed.keys.context_messages("side")) == 2
