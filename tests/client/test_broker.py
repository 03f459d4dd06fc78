"""The client's seam to Redis: reads, cards, depths; what cannot be read is refused with a coded error."""

from __future__ import annotations

import pytest
import redis

from skillstream.broker import Broker
from skillstream_schemas.errors import BrokerRefused, MalformedEntry, ShardsMismatch
from skillstream_schemas.ids import START, EventId
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings
from tests.support.submissions import submission_of

from .bounds import soon
from .hand_worker import AGENT, HandWorker

pytestmark = pytest.mark.fake


async def test_a_stream_is_read_in_order_behind_a_cursor(broker: Broker, hand: HandWorker) -> None:
    hand.submit("t1")
    hand.open("t1")
    hand.say("t1", "a", "b", "c")
    entries = await soon(broker.read("t1", EventId(1, 1), count=2))
    assert [(str(entry_id), fields["text"]) for entry_id, fields in entries] == [("1-2", "a"), ("1-3", "b")]
    assert await soon(broker.read("t1", EventId(1, 4))) == []
    assert await soon(broker.read("nowhere", START)) == []


async def test_the_ends_of_a_stream(broker: Broker, hand: HandWorker) -> None:
    assert await soon(broker.ends("t1")) is None
    hand.submit("t1")
    ends = await soon(broker.ends("t1"))
    assert ends is not None
    assert [str(entry_id) for entry_id, _ in ends] == ["0-1", "0-1"]
    hand.run("t1", "x")
    ends = await soon(broker.ends("t1"))
    assert ends is not None
    assert [str(entry_id) for entry_id, _ in ends] == ["0-1", "1-3"]


@pytest.mark.guarantee("G13")
async def test_bytes_that_are_not_utf8_are_refused_by_place(
    broker: Broker, hand: HandWorker, outside: redis.Redis, settings: Settings
) -> None:
    hand.submit("t1")
    key = settings.keys.events("t1")
    outside.xadd(key, {"type": "chunk", "text": b"\xff\xfe", "at": "1"}, id="1-1")
    with pytest.raises(MalformedEntry, match=r"entry 1-1: .*not UTF-8"):
        await soon(broker.read("t1", START))


@pytest.mark.guarantee("G13")
async def test_an_id_that_no_event_has_is_refused(
    broker: Broker, hand: HandWorker, outside: redis.Redis, settings: Settings
) -> None:
    hand.submit("t1")
    outside.xadd(settings.keys.events("t1"), {"type": "chunk"}, id="18446744073709551615-1")
    with pytest.raises(MalformedEntry, match="18446744073709551615-1"):
        await soon(broker.read("t1", START))


@pytest.mark.guarantee("G13")
async def test_a_key_of_another_type_is_refused(broker: Broker, outside: redis.Redis, settings: Settings) -> None:
    outside.set(settings.keys.events("t1"), "no stream", ex=60)
    request = TaskRequest(agent=AGENT, skill="say", message="x")
    with pytest.raises(BrokerRefused, match=r"submit: .*WRONGTYPE"):
        await soon(broker.submit(submission_of("t1", request)))
    with pytest.raises(BrokerRefused, match=r"XRANGE: .*WRONGTYPE"):
        await soon(broker.read("t1", START))
    with pytest.raises(BrokerRefused, match=r"read ends: .*WRONGTYPE"):
        await soon(broker.ends("t1"))


async def test_a_broker_that_refuses_at_the_start_leaves_no_connection(outside: redis.Redis, settings: Settings) -> None:
    outside.rpush(settings.keys.shards, "not a number")
    with pytest.raises(BrokerRefused, match=r"check shards: .*WRONGTYPE"):
        await soon(Broker(settings).open())


async def test_cards_that_cannot_be_read_are_left_out(broker: Broker, hand: HandWorker, outside: redis.Redis) -> None:
    hand.announce(agent="other")
    outside.hset("skillstream:agents", mapping={"broken": "{", "older": '{"title":"x"}', b"\xff": "{}"})
    assert set(await soon(broker.cards())) == {AGENT, "other"}
    assert set(await soon(broker.cards("other"))) == {"other"}
    assert await soon(broker.cards("broken")) == {}
    assert await soon(broker.cards("nobody")) == {}


async def test_depths_tell_claimable_jobs_from_leased_and_delayed_ones(broker: Broker, hand: HandWorker) -> None:
    assert await soon(broker.queue_depths(AGENT)) == (0, 0)
    await broker.enqueue(AGENT, "t1")
    await broker.enqueue(AGENT, "t2")
    await broker.enqueue(AGENT, "t3", delay_ms=60_000)
    assert await soon(broker.queue_depths(AGENT)) == (2, 1)


async def test_messages_of_a_context_that_cannot_be_read_are_left_out(
    broker: Broker, outside: redis.Redis, settings: Settings
) -> None:
    key = settings.keys.context_messages("c")
    outside.rpush(key, '{"role":"user","text":"hi"}', "{", '{"role":"agent","text":"hello","task_id":"t1"}')
    outside.expire(key, 60)
    messages = await soon(broker.context_messages("c"))
    assert [(message.role, message.text) for message in messages] == [("user", "hi"), ("agent", "hello")]
    assert await soon(broker.context_messages("nowhere")) == []


class TestShards:
    async def test_the_number_is_fixed_at_first_start(self, broker: Broker, outside: redis.Redis, settings: Settings) -> None:
        assert outside.get("skillstream:shards") == "4"
        with pytest.raises(ShardsMismatch, match="4 shards, this process 8"):
            await soon(Broker(settings.changed(shards=8)).open())
        assert outside.get("skillstream:shards") == "4"

    async def test_the_same_number_opens_again(self, broker: Broker, settings: Settings) -> None:
        again = await soon(Broker(settings).open())
        await again.close()
        await again.close()
