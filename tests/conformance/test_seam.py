"""The seam does to one command what it says, and nothing to the others: else no trace would be one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from skillstream.pipeline import Pipeline
from skillstream.resp import ReplyError, pack
from skillstream_schemas.errors import BrokerRefused
from skillstream_schemas.settings import Settings
from tests.client.bounds import soon, until
from tests.support.protocol_bench import port_of

from .seam import Seam

KEY = "seam"


@pytest.fixture
async def seam(settings: Settings) -> AsyncIterator[Seam]:
    async with Seam(port_of(settings)) as opened:
        yield opened


@pytest.fixture
async def pipeline(settings: Settings, seam: Seam) -> AsyncIterator[Pipeline]:
    opened = Pipeline(settings.changed(redis_url=seam.url))
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def shown(outside: redis.Redis) -> Any:
    outside.rpush(KEY, "first")
    outside.expire(KEY, 60)
    return outside


def values(shown: Any) -> list[str]:
    found: list[str] = shown.lrange(KEY, 0, -1)
    return found


async def test_a_held_command_waits_and_all_behind_it(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    hook = seam.hold("RPUSH", "a")
    held = asyncio.ensure_future(pipeline.call("RPUSH", KEY, "a"))
    await hook.happened()
    behind = asyncio.ensure_future(pipeline.call("RPUSH", KEY, "b"))
    assert values(shown) == ["first"]
    hook.release()
    assert [await soon(held), await soon(behind)] == [2, 3]


async def test_an_answer_may_be_late(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    hook = seam.late_answer("RPUSH")
    asked = asyncio.ensure_future(pipeline.call("RPUSH", KEY, "a"))
    await hook.happened()
    assert values(shown) == ["first", "a"]
    assert not asked.done()
    hook.release()
    assert await soon(asked) == 2


async def test_a_lost_command_is_sent_again_and_executed_once(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    hook = seam.lose("RPUSH")
    assert await soon(pipeline.call("RPUSH", KEY, "a")) == 2
    assert hook.met.is_set()


async def test_a_lost_answer_has_the_command_executed_again(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    hook = seam.lose_answer("RPUSH")
    assert await soon(pipeline.call("RPUSH", KEY, "a")) == 3
    assert hook.met.is_set()


async def test_a_kept_command_arrives_when_the_test_says(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    hook = seam.keep("RPUSH", "a")
    assert await soon(pipeline.call("RPUSH", KEY, "a")) == 2
    assert await soon(pipeline.call("RPUSH", KEY, "b")) == 3
    assert await hook.arrive() == [b":4\r\n"]
    assert values(shown) == ["first", "a", "b", "a"]


async def test_a_repeated_command_is_answered_once(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    hook = seam.repeat("RPUSH")
    assert await soon(pipeline.call("RPUSH", KEY, "a")) == 2
    assert await soon(pipeline.call("RPUSH", KEY, "b")) == 4
    await hook.happened()
    assert values(shown) == ["first", "a", "a", "b"]


async def test_a_command_is_refused_alone(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    seam.refuse("RPUSH", "b", error="ERR not this one")
    replies = await soon(pipeline.batch([("RPUSH", KEY, word) for word in "abc"], "push"))
    assert replies[0] == 2
    assert str(replies[1]) == "ERR not this one"
    assert replies[2] == 3
    seam.refuse("RPUSH", "d", error="ERR not this one either")
    with pytest.raises(BrokerRefused, match="not this one either"):
        await soon(pipeline.call("RPUSH", KEY, "d"))


async def test_a_command_that_is_refused_inside_a_transaction_takes_it_along(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    seam.refuse("RPUSH", "b", error="OOM no room")
    commands = [("MULTI",), ("RPUSH", KEY, "a"), ("RPUSH", KEY, "b"), ("EXEC",)]
    replies: list[Any] = []
    pipeline.add(Collecting(commands, replies))
    await until(lambda: bool(replies))
    assert [str(reply)[:9] for reply in replies if isinstance(reply, ReplyError)] == ["OOM no ro", "EXECABORT"]
    assert values(shown) == ["first"]


async def test_a_part_that_is_cut_off_hears_nothing_more(seam: Seam, pipeline: Pipeline, shown: Any) -> None:
    await pipeline.call("RPUSH", KEY, "a")
    seam.cut_off()
    asked = asyncio.ensure_future(pipeline.call("RPUSH", KEY, "b"))
    await pipeline.close()
    with pytest.raises(Exception, match="closed here"):
        await soon(asked)
    assert values(shown) == ["first", "a"]
    assert seam.count("RPUSH") == 1


class Collecting:
    """Commands of one batch, and their answers as they come."""

    def __init__(self, commands: list[tuple[str, ...]], replies: list[Any]) -> None:
        self._commands, self._replies = commands, replies

    def pack(self) -> tuple[bytes, int]:
        return b"".join(map(pack, self._commands)), len(self._commands)

    def deliver(self, replies: Any) -> None:
        self._replies.extend(replies)
