"""The script that ends a task from outside, seen from outside through redis-py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis

from skillstream.broker import Broker, Ending
from skillstream_schemas.errors import StreamLost
from skillstream_schemas.event import FinalEvent, event_from_fields
from skillstream_schemas.ids import START, EventId
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .bounds import soon
from .hand_worker import AGENT, HandWorker
from .reading import near, server_ms

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS

pytestmark = pytest.mark.fake


def ending(seen: str, keep: int | None, text: str = "", **changes: Any) -> Ending:
    values: dict[str, Any] = {
        "state": TaskState.FAILED,
        "error": "expired",
        "reason": "too late",
        "metadata": {"agentId": AGENT},
        "chunks": 0,
    }
    final = FinalEvent(id=START, at=0, text=text, **(values | changes))
    return Ending(final, EventId.parse(seen), keep)


class TestClose:
    async def test_a_queued_task_gets_an_opening_and_a_final_at_once(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis
    ) -> None:
        hand.submit("t1")
        before_ms = server_ms(outside)
        final = await soon(broker.close_task("t1", ending("0-1", None), "reaper"))
        assert final is not None
        [_, (opening_id, opening), (final_id, fields)] = hand.entries("t1")
        assert (opening_id, final_id) == ("1-1", "1-2")
        assert (opening["worker"], opening["strikes"], "resume_from" in opening) == ("reaper", "0", False)
        assert int(opening["claim"]) // 1000 == int(opening["at"]) == int(fields["at"]) == final.at
        assert before_ms - 1 <= final.at <= server_ms(outside)
        assert event_from_fields(EventId(1, 1), opening).type == "status"
        assert event_from_fields(EventId(1, 2), fields) == final
        assert (final.state, final.error, final.reason) == (TaskState.FAILED, "expired", "too late")
        assert hand.rings("t1") == ["final"]

    async def test_a_running_task_keeps_text_and_strikes(self, broker: Broker, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1", strikes=2)
        hand.say("t1", "Zürich ", "😀")
        final = await soon(broker.close_task("t1", ending("1-3", 8, "Zürich 😀"), "reaper"))
        assert final is not None
        (opening_id, opening), (final_id, fields) = hand.entries("t1")[-2:]
        assert (opening_id, opening["resume_from"], opening["strikes"]) == ("2-1", "8", "2")
        assert (final_id, fields["text"]) == ("2-2", "Zürich 😀")

    async def test_a_task_that_said_more_in_the_same_attempt_is_closed_with_what_was_read(
        self, broker: Broker, hand: HandWorker
    ) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "a", "b")
        assert await soon(broker.close_task("t1", ending("1-2", 1, "a"), "reaper")) is not None
        assert [entry_id for entry_id, _ in hand.entries("t1")][-2:] == ["2-1", "2-2"]

    @pytest.mark.parametrize("seen", ["0-1", "1-3", "2-1"])
    async def test_a_stream_that_went_on_or_back_is_read_again(self, broker: Broker, hand: HandWorker, seen: str) -> None:
        hand.submit("t1")
        hand.open("t1")
        hand.say("t1", "a")
        before = hand.entries("t1")
        assert await soon(broker.close_task("t1", ending(seen, 0), "reaper")) is None
        assert hand.entries("t1") == before

    @pytest.mark.guarantee("G2")
    async def test_nothing_follows_a_final(self, broker: Broker, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.run("t1", "done")
        before = hand.entries("t1")
        for seen in ("0-1", "1-2", "1-3", "2-1"):
            final = await soon(broker.close_task("t1", ending(seen, 0), "reaper"))
            assert final is not None
            assert (final.state, final.text) == (TaskState.COMPLETED, "done")
        assert hand.entries("t1") == before
        assert hand.rings("t1") == []

    @pytest.mark.guarantee("G2")
    async def test_of_many_closers_one_closes(self, broker: Broker, hand: HandWorker) -> None:
        hand.submit("t1")
        finals = await soon(
            asyncio.gather(*(broker.close_task("t1", ending("0-1", None, reason=f"{n}"), "reaper") for n in range(20)))
        )
        assert len({final.reason for final in finals if final is not None}) == 1
        assert len(finals) == 20
        assert [entry_id for entry_id, _ in hand.entries("t1")] == ["0-1", "1-1", "1-2"]

    @pytest.mark.guarantee("G4")
    async def test_an_older_worker_adds_nothing_behind_a_close(self, broker: Broker, hand: HandWorker) -> None:
        hand.submit("t1")
        hand.open("t1")
        await soon(broker.close_task("t1", ending("1-1", 0), "reaper"))
        with pytest.raises(redis.exceptions.ResponseError, match="equal or smaller"):
            hand.say("t1", "late")

    async def test_a_task_without_stream(self, broker: Broker, outside: redis.Redis) -> None:
        with pytest.raises(StreamLost):
            await soon(broker.close_task("t1", ending("0-1", None), "reaper"))
        assert not [key for key in outside.scan_iter() if ":task:" in key]

    @pytest.mark.guarantee("G15")
    async def test_a_close_gives_the_stream_its_time_again(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis, settings: Settings
    ) -> None:
        hand.submit("t1")
        await soon(broker.close_task("t1", ending("0-1", None), "reaper"))
        assert near(int(str(outside.pttl(settings.keys.events("t1")))), WEEK_MS)

    async def test_a_close_never_shortens_the_streams_time(
        self, broker: Broker, hand: HandWorker, outside: redis.Redis, settings: Settings
    ) -> None:
        hand.submit("t1")
        outside.pexpire(settings.keys.events("t1"), WEEK_MS + DAY_MS)
        await soon(broker.close_task("t1", ending("0-1", None), "reaper"))
        assert near(int(str(outside.pttl(settings.keys.events("t1")))), WEEK_MS + DAY_MS)
