"""Whoever owes an end gets one: also where entries, the stream or the broker are gone."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import redis

from skillstream import Client
from skillstream.clock import Clock
from skillstream_router.connect.broker import ConnectBroker
from skillstream_router.connect.deliveries import Deliveries
from skillstream_router.connect.following import events_to_the_end
from skillstream_router.connect.hub.execution import Execution
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent
from skillstream_schemas.ids import START, EventId
from skillstream_schemas.settings import Settings
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually
from tests.support.cutting_proxy import CuttingProxy
from tests.support.verbs import BOUND_S


async def followed(client: Client, task_id: str, after: EventId = START) -> list[FollowedEvent]:
    async with asyncio.timeout(4 * BOUND_S):
        async with aclosing(events_to_the_end(client.task(task_id), after, Clock())) as events:
            return [event async for event in events]


def final_of(events: list[FollowedEvent]) -> FinalEvent:
    final = events[-1]
    assert isinstance(final, FinalEvent)
    return final


async def test_a_hole_leaves_the_final(client: Client, outside: redis.Redis, settings: Settings) -> None:
    hand = HandWorker(outside, settings)
    hand.submit("t")
    hand.open("t")
    hand.say("t", "a", "b", "c")
    outside.xdel(settings.keys.events("t"), "1-3")
    hand.finish("t", "1-5", "abc", chunks=3)
    events = await followed(client, "t")
    assert [event.text for event in events if isinstance(event, ChunkEvent)] == ["a"]
    assert final_of(events).text == "abc"


async def test_a_stream_that_is_gone_ends_as_lost(client: Client) -> None:
    final = final_of(await followed(client, "nowhere"))
    assert (final.state, final.error) == ("failed", "stream_lost")


async def test_a_final_that_cannot_be_read_ends_as_malformed(client: Client, outside: redis.Redis, settings: Settings) -> None:
    hand = HandWorker(outside, settings)
    hand.submit("t")
    hand.open("t")
    hand.add("t", "1-2", type="final", state="flying")
    final = final_of(await followed(client, "t"))
    assert (final.state, final.error) == ("failed", "malformed_entry")


async def test_a_cursor_behind_the_final_gives_the_final(client: Client, outside: redis.Redis, settings: Settings) -> None:
    hand = HandWorker(outside, settings)
    hand.submit("t")
    hand.run("t", "a")
    assert [event.type for event in await followed(client, "t", EventId(1, 3))] == ["final"]


async def test_a_broker_that_is_away_is_waited_for(outside: redis.Redis, settings: Settings) -> None:
    hand = HandWorker(outside, settings)
    hand.submit("t")
    hand.open("t")
    hand.say("t", "a")
    port = int(settings.redis_url.rsplit(":", 1)[1].partition("/")[0])
    async with CuttingProxy(port) as proxy:
        through = settings.changed(redis_url=proxy.url, patience_s=0.1, answer_timeout_s=0.5, connect_timeout_s=0.5)
        async with Client(settings=through) as client:
            following = asyncio.create_task(followed(client, "t"))
            await eventually(lambda: proxy.connections >= 2, "it follows")
            proxy.swallows = True
            proxy.drop()
            broken = proxy.connections
            await eventually(lambda: proxy.connections > broken + 2, "it tries and gives up, more than once", 4 * BOUND_S)
            proxy.swallows = False
            proxy.drop()
            hand.finish("t", "1-3", "a", chunks=1)
            events = await following
    assert [event.text for event in events if isinstance(event, ChunkEvent)] == ["a"]
    assert final_of(events).state == "completed"


def execution(hub_task: str, **changes: object) -> Execution:
    made = Execution(hub_task=hub_task, digest="d", skill="s", context_id="c", task_id="t", received_at=1)
    return made.model_copy(update=changes)


async def test_a_note_never_comes_behind_the_end(outside: redis.Redis, settings: Settings) -> None:
    broker = await ConnectBroker(settings).open()
    deliveries = Deliveries(broker, "hub-test", Execution)
    writing = asyncio.create_task(deliveries.run())
    try:
        for number in range(50):
            await deliveries.keep("d", execution("h", turn=number + 1))
            deliveries.note("d", execution("h", turn=number + 1, submitted=True))
            if number % 2:
                await asyncio.sleep(0)
            await deliveries.end("d", execution("h", turn=number + 1))
        deliveries.note("other", execution("other"))
        await eventually(lambda: outside.hkeys(settings.keys.connect_open("hub-test")) == ["other"], "notes are written")
        assert (await deliveries.ended("d")) == execution("h", turn=50)
        assert await deliveries.owed() == {"other": execution("other")}
        await deliveries.end("other", None)
        assert await deliveries.ended("other") is None
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await broker.close()


async def test_a_record_that_cannot_be_read_hinders_nobody(outside: redis.Redis, settings: Settings) -> None:
    key = settings.keys.connect_open("hub-test")
    outside.hset(key, mapping={"bad": "{", "good": execution("h").model_dump_json()})
    outside.expire(key, 60)
    broker = await ConnectBroker(settings).open()
    try:
        assert list(await Deliveries(broker, "hub-test", Execution).owed()) == ["good"]
    finally:
        await broker.close()
