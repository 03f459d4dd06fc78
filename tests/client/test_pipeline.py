"""Group commit: few batches, right answers, and patience with a broker that goes away and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha1
from typing import Any

import pytest
import redis

from skillstream.batching import Call, ScriptBatch
from skillstream.broker import Broker
from skillstream.pipeline import Pipeline
from skillstream.resp import Reply, ReplyError, pack
from skillstream.scripts import Script
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable
from skillstream_schemas.limits import KIB, Limits
from skillstream_schemas.settings import Settings
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, free_port

from .bounds import soon, until
from .busy import keep_busy


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Pipeline]:
    pipeline = Pipeline(settings)
    await pipeline.open()
    try:
        yield pipeline
    finally:
        await pipeline.close()


@pytest.fixture
async def pipeline(settings: Settings) -> AsyncIterator[Pipeline]:
    async with opened(settings) as made:
        yield made


def in_flight(pipeline: Pipeline) -> bool:
    return "in_flight=0" not in repr(pipeline)


@pytest.mark.fake
async def test_each_caller_gets_its_own_answer(pipeline: Pipeline) -> None:
    answers = await soon(asyncio.gather(*(pipeline.call("ECHO", number) for number in range(500))))
    assert answers == [str(number).encode() for number in range(500)]


async def test_concurrent_calls_share_batches(pipeline: Pipeline, outside: redis.Redis) -> None:
    await pipeline.call("PING")
    before = reads(outside)
    await soon(asyncio.gather(*(pipeline.call("ECHO", number) for number in range(100))))
    assert reads(outside) - before <= 8


def reads(outside: redis.Redis) -> int:
    info: Any = outside.info("stats")
    return int(info["total_reads_processed"])


async def test_while_a_batch_is_under_way_the_next_one_collects(own_server: RedisServer) -> None:
    async with opened(make_settings(own_server.url)) as pipeline:
        await pipeline.call("PING")
        with own_server.client() as outside:
            before = reads(outside)
            own_server.pause()
            first = asyncio.create_task(pipeline.call("ECHO", "first"))
            await until(lambda: in_flight(pipeline))
            calls = []
            for number in range(100):  # each in a turn of the loop of its own
                calls.append(asyncio.create_task(pipeline.call("ECHO", number)))
                await asyncio.sleep(0)
            own_server.resume()
            assert await soon(first) == b"first"
            assert await soon(asyncio.gather(*calls)) == [str(number).encode() for number in range(100)]
            assert reads(outside) - before <= 4


class Counted:
    """A unit that tells how many bytes are under way."""

    under_way = 0
    most = 0

    def __init__(self, size: int) -> None:
        self.packed = pack(("ECHO", b"x" * size))
        self.replies: Sequence[Reply] | BrokerUnavailable | None = None

    def pack(self) -> tuple[bytes, int]:
        Counted.under_way += len(self.packed)
        Counted.most = max(Counted.most, Counted.under_way)
        return self.packed, 1

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        Counted.under_way -= len(self.packed)
        self.replies = replies


@pytest.mark.guarantee("G14")
async def test_batches_are_bounded_in_bytes(settings: Settings) -> None:
    limits = Limits(flight_bytes=64 * KIB)
    async with opened(settings.changed(limits=limits)) as pipeline:
        units = [Counted(40 * KIB) for _ in range(20)]
        for unit in units:
            pipeline.add(unit)
        await until(lambda: all(unit.replies is not None for unit in units))
    assert all(unit.replies == [b"x" * 40 * KIB] for unit in units)
    assert Counted.most < 2 * (limits.flight_bytes + 41 * KIB)  # two batches are under way at once


async def test_a_cancelled_caller_leaves_no_reply_for_another(own_server: RedisServer) -> None:
    async with opened(make_settings(own_server.url)) as pipeline:
        own_server.pause()
        sent = asyncio.create_task(pipeline.call("ECHO", "cancelled under way"))
        await until(lambda: in_flight(pipeline))
        unsent = asyncio.create_task(pipeline.call("ECHO", "cancelled before it left"))
        kept = [asyncio.create_task(pipeline.call("ECHO", number)) for number in range(3)]
        await asyncio.sleep(0)
        sent.cancel()
        unsent.cancel()
        await asyncio.gather(sent, unsent, return_exceptions=True)
        own_server.resume()
        assert await soon(asyncio.gather(*kept)) == [b"0", b"1", b"2"]
        assert await soon(pipeline.call("ECHO", "next")) == b"next"


@pytest.mark.fake
async def test_an_error_answer_is_mapped(pipeline: Pipeline) -> None:
    with pytest.raises(BrokerRefused, match=r"look at it: .*unknown command"):
        await soon(pipeline.call("NONSENSE", step="look at it"))
    assert await soon(pipeline.call("PING")) == b"PONG"


@pytest.mark.fake
async def test_a_batch_keeps_errors_in_their_places(pipeline: Pipeline) -> None:
    replies = await soon(pipeline.batch([("ECHO", "a"), ("NONSENSE",), ("ECHO", "b")], "three"))
    assert (replies[0], replies[2]) == (b"a", b"b")
    assert isinstance(replies[1], ReplyError)
    assert await pipeline.batch([], "none") == []


async def test_scripts_are_brought_along_after_a_flush(broker: Broker, outside: redis.Redis) -> None:
    outside.script_flush()
    assert await soon(broker.request_cancel("nowhere", "")) is None
    assert await soon(broker.request_cancel("nowhere", "")) is None


async def test_a_server_killed_and_started_again(own_server: RedisServer) -> None:
    async with opened(make_settings(own_server.url, patience_s=20)) as pipeline:
        assert await pipeline.call("PING") == b"PONG"
        own_server.stop()
        calls = [asyncio.create_task(pipeline.call("ECHO", number)) for number in range(20)]
        await asyncio.sleep(0)
        await asyncio.to_thread(own_server.start)
        assert await soon(asyncio.gather(*calls)) == [str(number).encode() for number in range(20)]


async def test_a_server_killed_with_a_batch_under_way(own_server: RedisServer) -> None:
    async with opened(make_settings(own_server.url, patience_s=20)) as pipeline:
        own_server.pause()
        call = asyncio.create_task(pipeline.call("ECHO", "again"))
        await until(lambda: in_flight(pipeline))
        own_server.stop()
        await asyncio.to_thread(own_server.start)
        assert await soon(call) == b"again"


async def test_patience_ends_and_names_the_step(own_server: RedisServer) -> None:
    patience_s = 1.5
    async with opened(make_settings(own_server.url, patience_s=patience_s)) as pipeline:
        own_server.stop()
        started = time.monotonic()
        with pytest.raises(BrokerUnavailable, match="look at the queue: ") as raised:
            await soon(pipeline.call("PING", step="look at the queue"))
        taken_s = time.monotonic() - started
        assert 0.9 * patience_s <= taken_s < 1.9 * patience_s, "once, not once for the connection and once for the command"
        assert str(raised.value).count("broker_unavailable") == 1
        await asyncio.to_thread(own_server.start)
        assert await soon(pipeline.call("PING")) == b"PONG"


async def test_an_unreachable_broker_is_told_at_once() -> None:
    pipeline = Pipeline(make_settings(f"redis://127.0.0.1:{free_port()}/0", patience_s=3600))
    with pytest.raises(BrokerUnavailable):
        await soon(pipeline.open())
    await pipeline.close()


async def test_an_unanswered_command_breaks_the_connection(own_server: RedisServer) -> None:
    answer_s = 1.0
    settings = make_settings(own_server.url, answer_timeout_s=answer_s, connect_timeout_s=1, patience_s=0.01)
    async with opened(settings) as pipeline:
        own_server.pause()
        try:
            started = time.monotonic()
            with pytest.raises(BrokerUnavailable, match="no answer within"):
                await soon(pipeline.call("PING"))
            assert time.monotonic() - started >= answer_s
        finally:
            own_server.resume()
        assert await soon(pipeline.call("ECHO", "back")) == b"back"


async def test_whoever_waits_hears_of_a_close(own_server: RedisServer) -> None:
    async with opened(make_settings(own_server.url)) as pipeline:
        own_server.pause()
        calls = [asyncio.create_task(pipeline.call("PING")) for _ in range(3)]
        await until(lambda: in_flight(pipeline))
        await pipeline.close()
        await pipeline.close()
        answers = await soon(asyncio.gather(*calls, return_exceptions=True))
        assert [type(answer) for answer in answers] == [BrokerUnavailable] * 3
        with pytest.raises(BrokerUnavailable):
            await soon(pipeline.call("PING"))
        own_server.resume()


async def test_a_broker_without_memory_is_waited_for(own_server: RedisServer) -> None:
    async with opened(make_settings(own_server.url)) as pipeline:
        with own_server.client() as outside:
            outside.config_set("maxmemory", "1")
            call = asyncio.create_task(pipeline.call("SET", "key", "value"))
            await until(lambda: refused(outside, "errorstat_OOM"))
            outside.config_set("maxmemory", "0")
            assert await soon(call) == b"OK"
            assert outside.get("key") == "value"


def refused(outside: redis.Redis, kind: str) -> bool:
    info: Any = outside.info("errorstats")
    return kind in info


async def test_a_busy_broker_is_waited_for(busy_server: RedisServer) -> None:
    async with opened(make_settings(busy_server.url, patience_s=20)) as pipeline:
        done = keep_busy(busy_server)
        call = asyncio.create_task(pipeline.call("ECHO", "after the script"))
        await asyncio.to_thread(done)
        assert await soon(call) == b"after the script"


@pytest.mark.parametrize("answer", ["{}", "{1, 2, 3}", "'text'", "7"])
async def test_an_answer_that_fits_no_question_holds_up_nobody(settings: Settings, outside: redis.Redis, answer: str) -> None:
    source = f"return {answer}".encode()
    odd = Script("odd", source, sha1(source, usedforsecurity=False).hexdigest().encode())
    pipeline = Pipeline(settings.changed(patience_s=0.2), (odd,))
    await pipeline.open()
    try:
        batch = ScriptBatch(pipeline, odd)
        asked = [batch.run(Call(("k",), (), ())), pipeline.call("PING"), batch.run(Call(("k",), (), ()))]
        first, pong, second = await soon(asyncio.gather(*asked, return_exceptions=True))
        assert pong == b"PONG"
        for error in (first, second):
            assert isinstance(error, BrokerUnavailable)
            assert "odd asked for 2 answers and got" in error.message
        assert await soon(pipeline.call("PING")) == b"PONG"
    finally:
        await pipeline.close()
