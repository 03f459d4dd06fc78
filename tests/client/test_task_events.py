"""A task's events live and from any cursor; streams are written by hand, whole, with holes, and malformed."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
import redis

from skillstream import Client
from skillstream_schemas.errors import (
    InvalidName,
    MalformedEntry,
    StreamGap,
    StreamLost,
    UnknownTask,
)
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent
from skillstream_schemas.settings import Settings

from .bounds import collected, soon
from .hand_worker import HandWorker
from .reading import first, places, read_into

pytestmark = pytest.mark.fake


class TestEvents:
    @pytest.mark.guarantee("G3")
    async def test_events_come_live_one_by_one(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        async with aclosing(client.task("t1").events()) as events:
            assert str((await soon(anext(events))).id) == "0-1"  # type: ignore[union-attr]
            hand.open("t1")
            assert str((await soon(anext(events))).id) == "1-1"  # type: ignore[union-attr]
            for seq, text in enumerate("abc", 2):
                hand.say("t1", text, seq=seq)
                event = await soon(anext(events))
                assert isinstance(event, ChunkEvent)
                assert (str(event.id), event.text) == (f"1-{seq}", text)
            hand.finish("t1", "1-5", "abc", chunks=3)
            assert isinstance(await soon(anext(events)), FinalEvent)
            with pytest.raises(StopAsyncIteration):
                await soon(anext(events))

    @pytest.mark.guarantee("G3")
    @pytest.mark.parametrize("after", ["0", "0-1", "1-1", "1-2", "1-3", "1-4"])
    async def test_an_ended_task_plays_again_from_every_cursor(self, client: Client, hand: HandWorker, after: str) -> None:
        hand.submit("t1")
        hand.run("t1", "a", "b")
        whole = places(await collected(client.task("t1").events()))
        assert whole == ["0-1", "1-1", "1-2", "1-3", "1-4"]
        rest = whole[whole.index(after) + 1 :] if after != "0" else whole
        assert places(await collected(client.task("t1").events(after=after))) == rest

    @pytest.mark.parametrize("after", ["0", "1", "2-0"])
    async def test_a_bare_attempt_is_a_cursor_too(self, client: Client, hand: HandWorker, after: str) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.open("t1", 2)
        hand.finish("t1", "2-2", "", chunks=0)
        everything = ["0-1", "1-1", "reset 2 keeps 0", "2-1", "2-2"]
        assert places(await collected(client.task("t1").events(after=after))) == everything[int(after[0]) :]

    async def test_each_cursor_of_a_live_task_goes_on_where_it_stood(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        seen: list[str] = []
        cursor = "0"
        for seq in range(2, 12):
            hand.say("t1", "x", seq=seq)
            while cursor != f"1-{seq}":  # a reader that leaves after every event
                async with aclosing(client.task("t1").events(after=cursor)) as events:
                    [cursor] = places([await soon(first(events))])
                    seen.append(cursor)
        assert seen == ["0-1", *(f"1-{seq}" for seq in range(1, 12))]

    @pytest.mark.guarantee("G3")
    async def test_long_streams_come_whole(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.run("t1", *(str(number) for number in range(1050)))
        events = await collected(client.task("t1").events())
        assert places(events) == ["0-1", *(f"1-{seq}" for seq in range(1, 1053))]

    @pytest.mark.guarantee("G3")
    async def test_two_followers_of_one_stream_see_the_same(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        task = client.task("t1")
        followers = [asyncio.create_task(collected(task.events())) for _ in range(2)]
        late = asyncio.create_task(collected(client.task("t1").events(after="1-1")))
        await asyncio.sleep(0)
        hand.open("t1")
        for seq in range(2, 30):
            hand.say("t1", "x", seq=seq)
            await asyncio.sleep(0)
        hand.finish("t1", "1-30", "x" * 28, chunks=28)
        one, other = [places(events) for events in await soon(asyncio.gather(*followers))]
        assert one == other == ["0-1", *(f"1-{seq}" for seq in range(1, 31))]
        assert places(await soon(late)) == one[2:]

    async def test_a_hundred_tasks_are_followed_on_one_connection(
        self, client: Client, hand: HandWorker, outside: redis.Redis
    ) -> None:
        names = [f"t{number}" for number in range(100)]
        for name in names:
            hand.submit(name)
        followers = [asyncio.create_task(collected(client.task(name).events())) for name in names]
        await asyncio.sleep(0)
        for name in names:
            hand.run(name, name)
        for name, events in zip(names, await soon(asyncio.gather(*followers)), strict=True):
            assert places(events) == ["0-1", "1-1", "1-2", "1-3"]
            assert isinstance(events[-1], FinalEvent)
            assert events[-1].text == name

    @pytest.mark.guarantee("G3")
    @pytest.mark.parametrize(("skipped", "after", "before"), [("1-3", "1-2", "1-4"), ("1-1", "0-1", "1-2")])
    async def test_a_hole_is_a_gap_that_names_its_range(
        self, client: Client, hand: HandWorker, skipped: str, after: str, before: str
    ) -> None:
        hand.submit("t1")
        if skipped != "1-1":
            hand.open("t1")
        hand.say("t1", "a")
        if skipped != "1-3":
            hand.say("t1", "b", seq=3)
        hand.say("t1", "c", seq=4)
        seen: list[FollowedEvent] = []
        with pytest.raises(StreamGap) as raised:
            await soon(read_into(seen, client.task("t1").events()))
        assert (raised.value.after, raised.value.before) == (after, before)
        assert places(seen)[-1] == after

    async def test_an_unknown_task(self, client: Client) -> None:
        with pytest.raises(UnknownTask, match="nowhere"):
            await collected(client.task("nowhere").events())
        with pytest.raises(UnknownTask):
            await collected(client.task("nowhere").text())
        with pytest.raises(UnknownTask):
            await soon(client.task("nowhere").result())
        with pytest.raises(UnknownTask):
            await soon(client.task("nowhere").cancel())

    async def test_a_cursor_into_a_stream_that_is_gone(self, client: Client) -> None:
        with pytest.raises(StreamLost):
            await collected(client.task("nowhere").events(after="1-4"))

    async def test_a_stream_that_vanishes_under_a_reader(
        self, client: Client, hand: HandWorker, outside: redis.Redis, settings: Settings
    ) -> None:
        hand.submit("t1")
        async with aclosing(client.task("t1").events()) as events:
            await soon(anext(events))
            outside.delete(settings.keys.events("t1"))
            with pytest.raises(StreamLost):
                await soon(anext(events))

    async def test_a_cursor_ahead_of_the_stream_starts_again(self, client: Client, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.run("t1", "a")
        events = await collected(client.task("t1").events(after="3-9"))
        assert places(events) == ["reset 0 keeps 0", "0-1", "1-1", "1-2", "1-3"]

    @pytest.mark.parametrize("name", ["", "a b", "{x}", "a\n", "x" * 129])
    async def test_a_name_that_is_no_task_id(self, client: Client, name: str) -> None:
        with pytest.raises(InvalidName, match="the task id"):
            client.task(name)

    @pytest.mark.parametrize("cursor", ["", "x", "1-2-3", "$"])
    async def test_a_cursor_that_is_none(self, client: Client, cursor: str) -> None:
        with pytest.raises(InvalidName):
            await collected(client.task("t1").events(after=cursor))


class TestMalformedEntries:
    @pytest.mark.guarantee("G13")
    @pytest.mark.parametrize(
        ("entry_id", "fields"),
        [
            ("1-3", {"type": "chunk", "text": b"\xff\xfe", "at": "1"}),
            ("1-3", {"type": "chunk", "surprise": "1", "at": "1"}),
            ("1-3", {"nonsense": "1"}),
            ("1-3", {"type": "final", "state": "working", "text": "", "metadata": "{}", "chunks": "0", "at": "1"}),
            ("18446744073709551615-3", {"type": "chunk", "text": "x", "at": "1"}),
        ],
    )
    async def test_what_stands_before_is_still_delivered(
        self,
        client: Client,
        hand: HandWorker,
        outside: redis.Redis,
        settings: Settings,
        entry_id: str,
        fields: dict[str | bytes, str | bytes],
    ) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "a")
        outside.xadd(settings.keys.events("t1"), fields, id=entry_id)  # type: ignore[arg-type]
        seen: list[FollowedEvent] = []
        with pytest.raises(MalformedEntry, match=entry_id):
            await soon(read_into(seen, client.task("t1").events()))
        assert places(seen) == ["0-1", "1-1", "1-2"]

    @pytest.mark.guarantee("G13")
    async def test_one_malformed_stream_stops_no_other_follower(
        self, client: Client, hand: HandWorker, outside: redis.Redis, settings: Settings
    ) -> None:
        hand.submit("bad")
        hand.submit("good")
        good = asyncio.create_task(collected(client.task("good").events()))
        bad = asyncio.create_task(collected(client.task("bad").events()))
        await asyncio.sleep(0)
        outside.xadd(settings.keys.events("bad"), {"x": "1"}, id="18446744073709551615-1")
        with pytest.raises(MalformedEntry):
            await soon(bad)
        hand.run("good", "fine")
        assert places(await soon(good))[-1] == "1-3"
