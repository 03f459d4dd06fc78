"""Ending a task from outside keeps what it said, ends it once, and leaves what has ended alone."""

from __future__ import annotations

import asyncio

import pytest

from skillstream.broker import Broker
from skillstream.closing import Verdict, close_from_outside, read_transcript
from skillstream_schemas.errors import UnknownTask
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.state import TaskState

from .bounds import soon
from .hand_worker import HandWorker

pytestmark = pytest.mark.fake
EXPIRED = Verdict(TaskState.FAILED, "not final in time", "expired")


@pytest.mark.guarantee("G5")
async def test_all_that_was_said_is_kept(broker: Broker, hand: HandWorker) -> None:
    hand.submit("t1")
    hand.open("t1")
    hand.say("t1", "gone ")
    hand.open("t1", 2)
    hand.say("t1", "Zürich ", "😀", attempt=2)
    final = await soon(close_from_outside(broker, "t1", EXPIRED, "reaper"))
    assert (str(final.id), final.state, final.error, final.reason) == ("3-2", TaskState.FAILED, "expired", "not final in time")
    (_, opening), (_, fields) = hand.entries("t1")[-2:]
    assert (opening["resume_from"], fields["text"], fields["chunks"]) == ("8", "Zürich 😀", "0")
    known = await soon(read_transcript(broker, "t1"))
    assert known is not None
    request, transcript = known
    assert (request.message, transcript.text, transcript.final) == ("hi", "Zürich 😀", final)


async def test_long_streams_are_read_whole(broker: Broker, hand: HandWorker) -> None:
    hand.submit("t1")
    hand.open("t1")
    hand.say("t1", *("x" for _ in range(1100)))
    final = await soon(close_from_outside(broker, "t1", EXPIRED, "reaper"))
    assert final.text == "x" * 1100


@pytest.mark.guarantee("G2")
async def test_an_ended_task_stays_as_it_is(broker: Broker, hand: HandWorker) -> None:
    hand.submit("t1")
    hand.run("t1", "done")
    before = hand.entries("t1")
    final = await soon(close_from_outside(broker, "t1", EXPIRED, "reaper"))
    assert final.state is TaskState.COMPLETED
    assert hand.entries("t1") == before


async def test_a_task_without_stream(broker: Broker) -> None:
    assert await soon(read_transcript(broker, "t1")) is None
    with pytest.raises(UnknownTask):
        await soon(close_from_outside(broker, "t1", EXPIRED, "reaper"))


@pytest.mark.guarantee("G2")
async def test_a_worker_that_opens_meanwhile_makes_the_closer_read_again(
    broker: Broker, hand: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand.submit("t1")
    close_task = broker.close_task
    tries = 0

    async def opened_first(*arguments: object) -> FinalEvent | None:
        nonlocal tries
        tries += 1
        if tries == 1:
            hand.open("t1")
            hand.say("t1", "just in time")
        return await close_task(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(broker, "close_task", opened_first)
    final = await soon(close_from_outside(broker, "t1", EXPIRED, "reaper"))
    assert (tries, final.text, str(final.id)) == (2, "just in time", "2-2")


@pytest.mark.guarantee("G2")
async def test_of_many_closers_one_ends_it(broker: Broker, hand: HandWorker) -> None:
    hand.submit("t1")
    hand.open("t1")
    hand.say("t1", "a")
    closers = [asyncio.create_task(close_from_outside(broker, "t1", EXPIRED, f"closer-{n}")) for n in range(10)]
    await asyncio.sleep(0)
    finals = await soon(asyncio.gather(*closers))
    assert len({final.id for final in finals}) == 1
    assert [fields["type"] for _, fields in hand.entries("t1")].count("final") == 1
    assert hand.rings("t1") == ["final"]
