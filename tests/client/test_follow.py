"""Following through breaks: nothing lost, nothing doubled, and no silent mix after the broker went back."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import redis

from skillstream import Client
from skillstream.follow import _CROWD, FollowHub
from skillstream.pipeline import Pipeline
from skillstream_schemas.errors import BrokerUnavailable, StreamLost, TextReset
from skillstream_schemas.event import FollowedEvent, ResetEvent
from skillstream_schemas.ids import START
from skillstream_schemas.settings import Settings
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, valkey_binary

from .bounds import collected, soon, until
from .busy import keep_busy
from .hand_worker import HandWorker
from .reading import places, read_into


@pytest.mark.guarantee("G3")
async def test_a_follower_outlives_killed_connections(client: Client, hand: HandWorker, outside: redis.Redis) -> None:
    hand.submit("t1")
    hand.open("t1")
    seen: list[FollowedEvent] = []
    follower = asyncio.create_task(read_into(seen, client.task("t1").events()))
    result = asyncio.create_task(client.task("t1").result())
    for seq in range(2, 202):
        hand.say("t1", str(seq), seq=seq)
        if seq % 20 == 0:
            outside.client_kill_filter(_type="normal", skipme=True)
        if seq % 20 == 10:
            await until(lambda: len(seen) >= seq)  # noqa: B023 - awaited within the turn
    hand.finish("t1", "1-202", "".join(map(str, range(2, 202))), chunks=200)
    await soon(follower)
    assert places(seen) == ["0-1", *(f"1-{seq}" for seq in range(1, 203))]
    assert str((await soon(result)).id) == "1-202"


@pytest.mark.guarantee("G3")
async def test_an_idle_follower_hears_of_what_came_while_it_was_cut_off(
    client: Client, hand: HandWorker, outside: redis.Redis
) -> None:
    hand.submit("t1")
    async with aclosing(client.task("t1").events()) as events:
        await soon(anext(events))
        following = asyncio.create_task(collected(events))
        await until(lambda: "stale=0" in repr(client._hub))
        outside.client_kill_filter(_type="normal", skipme=True)
        hand.run("t1", "a", "b")
        assert places(await soon(following)) == ["1-1", "1-2", "1-3", "1-4"]


async def test_a_flushed_broker_is_noticed_without_a_break(client: Client, hand: HandWorker, outside: redis.Redis) -> None:
    hand.submit("t1")
    async with aclosing(client.task("t1").events()) as events:
        await soon(anext(events))
        following = asyncio.create_task(collected(events))
        await until(lambda: "stale=0" in repr(client._hub))
        connections = made_connections(outside)
        outside.flushall()
        with pytest.raises(StreamLost):
            await soon(following)
        assert made_connections(outside) == connections


def made_connections(outside: redis.Redis) -> int:
    info: Any = outside.info("stats")
    return int(info["total_connections_received"])


async def test_a_full_tracking_table_loses_nothing(client: Client, hand: HandWorker, outside: redis.Redis) -> None:
    hand.submit("t1")
    follower = asyncio.create_task(collected(client.task("t1").events()))
    outside.config_set("tracking-table-max-keys", "1")
    try:
        for number in range(20):
            hand.submit(f"other-{number}")
            assert str((await soon(anext(client.task(f"other-{number}").events()))).id) == "0-1"  # type: ignore[union-attr]
        hand.run("t1", "a")
        assert places(await soon(follower)) == ["0-1", "1-1", "1-2", "1-3"]
    finally:
        outside.config_set("tracking-table-max-keys", "1000000")


def hub_of(client: Client) -> FollowHub:
    assert isinstance(client._hub, FollowHub)
    return client._hub


@pytest.mark.fake
async def test_a_follower_works_with_and_without_tracking(
    client: Client, hand: HandWorker, server_url: str, request: pytest.FixtureRequest
) -> None:
    hand.submit("t1")
    async with aclosing(client.task("t1").events()) as events:
        await soon(anext(events))
        assert hub_of(client).is_tracking is ("fake" not in request.node.name)
        hand.run("t1", "a")
        assert places(await collected(events)) == ["1-1", "1-2", "1-3"]


async def test_a_reader_that_fetches_nothing_holds_a_bounded_number_of_entries(settings: Settings, hand: HandWorker) -> None:
    hand.submit("t1")
    hand.run("t1", *("x" for _ in range(1500)))
    async with Client(settings=settings) as client, aclosing(client.task("t1").events()) as events:
        await soon(anext(events))
        await until(lambda: "stale=0" in repr(client._hub) or "stale=1" in repr(client._hub))
        [feed] = next(iter(hub_of(client)._feeds.values()))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(feed._entries) < 400
        assert len(await collected(events)) == 1502


@pytest.mark.guarantee("G3")
async def test_a_crowd_of_followers_is_read_together_and_misses_nothing(client: Client, hand: HandWorker) -> None:
    tasks = [f"t{number}" for number in range(_CROWD)]
    for task_id in tasks:
        hand.submit(task_id)
    seen: dict[str, list[FollowedEvent]] = {task_id: [] for task_id in tasks}
    followers = [asyncio.create_task(read_into(seen[task_id], client.task(task_id).events())) for task_id in tasks]
    await until(lambda: all(seen.values()))
    for task_id in tasks[::25]:
        hand.run(task_id, "a", "b")
    await soon(asyncio.gather(*followers[::25]))
    assert {tuple(places(seen[task_id])) for task_id in tasks[::25]} == {("0-1", "1-1", "1-2", "1-3", "1-4")}
    assert {tuple(places(seen[task_id])) for task_id in tasks[1::25]} == {("0-1",)}
    for follower in followers:
        follower.cancel()
    await asyncio.gather(*followers, return_exceptions=True)


async def test_a_follower_waits_for_a_busy_broker(busy_server: RedisServer) -> None:
    settings = make_settings(busy_server.url, patience_s=20)
    with busy_server.client() as outside:
        hand = HandWorker(outside, settings)
        hand.submit("t1")
        async with Client(settings=settings) as client, aclosing(client.task("t1").events()) as events:
            await soon(anext(events))
            done = keep_busy(busy_server)
            following = asyncio.create_task(collected(events))
            late = asyncio.create_task(collected(client.task("t1").events()))
            await until(lambda: hub_of(client)._away_since_s is not None)  # refused, for the script goes on
            await asyncio.to_thread(done)
            hand.run("t1", "a")
            assert places(await soon(following)) == ["1-1", "1-2", "1-3"]
            assert places(await soon(late)) == ["0-1", "1-1", "1-2", "1-3"]
            assert hub_of(client).is_tracking


async def test_patience_with_a_broker_that_stays_away_ends(own_server: RedisServer) -> None:
    settings = make_settings(own_server.url, patience_s=1)
    with own_server.client() as outside:
        HandWorker(outside, settings).submit("t1")
    async with Client(settings=settings) as client:
        async with aclosing(client.task("t1").events()) as events:
            await soon(anext(events))
            own_server.stop()
            with pytest.raises(BrokerUnavailable):
                await soon(anext(events))
        await asyncio.to_thread(own_server.start)
        with own_server.client() as outside:
            hand = HandWorker(outside, settings)
            hand.submit("t2")
            hand.run("t2", "a")
        assert (await soon(client.task("t2").result())).text == "a"


async def test_a_closed_hub_hands_out_ended_feeds(settings: Settings) -> None:
    hub = FollowHub(settings, Pipeline(settings))
    await hub.close()
    await hub.close()
    with pytest.raises(BrokerUnavailable):
        await soon(hub.feed("any", START).next())
    assert "feeds=0" in repr(hub)


class Failover:
    """A broker whose place is taken by another one that holds an older, or another, state."""

    def __init__(self, old: RedisServer, folder: Path) -> None:
        self.settings = make_settings(old.url, patience_s=20)
        self._old = old
        self._folder = folder
        self._new = RedisServer(valkey_binary(), keep_data=folder)

    def prepare(self) -> redis.Redis:
        """Starts the other one, to write what it is to hold."""
        self._new.start()
        return redis.Redis(host="127.0.0.1", port=self._new.port, decode_responses=True)

    def take_over(self) -> RedisServer:
        """Ends the old one; the other one comes up in its place."""
        with self._new.client() as outside:
            outside.save()
        self._new.stop()
        self._old.stop()
        follower = RedisServer(valkey_binary(), port=self._old.port, keep_data=self._folder)
        follower.start()
        return follower


@pytest.fixture
def failover(own_server: RedisServer, tmp_path: Path) -> Failover:
    return Failover(own_server, tmp_path)


def three_chunks(outside: redis.Redis, settings: Settings, claim: int) -> HandWorker:
    hand = HandWorker(outside, settings)
    hand.submit("t1")
    hand.open("t1", claim=claim)
    hand.say("t1", *(f"{claim} " for _ in range(3)))
    return hand


@pytest.mark.guarantee("G3")
@pytest.mark.parametrize("chunks", [1, 5])
async def test_another_attempt_under_the_same_ids_is_no_silent_mix(
    failover: Failover, own_server: RedisServer, chunks: int
) -> None:
    with own_server.client() as outside:
        three_chunks(outside, failover.settings, claim=111)
    with failover.prepare() as outside:
        other = HandWorker(outside, failover.settings)
        other.submit("t1")
        other.open("t1", claim=222)
        other.say("t1", *("222 " for _ in range(chunks)))
        other.finish("t1", f"1-{2 + chunks}", "222 " * chunks, chunks=chunks)
    async with Client(settings=failover.settings) as client:
        task = client.task("t1")
        texts = task.text()
        async with aclosing(task.events()) as events, aclosing(texts):
            seen: list[FollowedEvent] = [await soon(anext(events)) for _ in range(5)]
            assert [await soon(anext(texts)) for _ in range(3)] == ["111 "] * 3
            new = await asyncio.to_thread(failover.take_over)
            try:
                seen += await collected(events)
                assert places(seen) == [
                    "0-1", "1-1", "1-2", "1-3", "1-4", "reset 0 keeps 0", "0-1", *(f"1-{seq}" for seq in range(1, 3 + chunks))
                ]  # fmt: skip
                with pytest.raises(TextReset) as raised:
                    await soon(anext(texts))
                assert raised.value.keep == 0
                assert await collected(task.text(after=raised.value.after)) == ["222 "] * chunks
            finally:
                new.stop()


@pytest.mark.guarantee("G3")
async def test_the_same_attempt_goes_on_behind_the_cursor(failover: Failover, own_server: RedisServer) -> None:
    with own_server.client() as outside:
        three_chunks(outside, failover.settings, claim=111)
    with failover.prepare() as outside:
        hand = three_chunks(outside, failover.settings, claim=111)
        hand.finish("t1", "1-5", "111 " * 3, chunks=3)
    async with Client(settings=failover.settings) as client, aclosing(client.task("t1").events()) as events:
        seen = [await soon(anext(events)) for _ in range(5)]
        new = await asyncio.to_thread(failover.take_over)
        try:
            seen += await collected(events)
        finally:
            new.stop()
    assert not [event for event in seen if isinstance(event, ResetEvent)]
    assert places(seen) == ["0-1", "1-1", "1-2", "1-3", "1-4", "1-5"]


async def test_a_result_is_found_where_the_broker_went_back(failover: Failover, own_server: RedisServer) -> None:
    with own_server.client() as outside:
        three_chunks(outside, failover.settings, claim=111)
    with failover.prepare() as outside:
        other = HandWorker(outside, failover.settings)
        other.submit("t1")
        other.open("t1", claim=222)
        other.finish("t1", "1-2", "short", chunks=0)
    async with Client(settings=failover.settings) as client:
        waiting = asyncio.create_task(client.task("t1").result())
        await until(lambda: "feeds=1 stale=0" in repr(client._hub))
        new = await asyncio.to_thread(failover.take_over)
        try:
            assert (await soon(waiting)).text == "short"
        finally:
            new.stop()
