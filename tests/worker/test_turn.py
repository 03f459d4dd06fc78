"""A skill that never awaits: how long it holds the event loop, and that others go on beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from skillstream.clock import Clock
from skillstream_schemas.limits import Limits
from skillstream_worker.chunking import Chunking
from skillstream_worker.context import TaskContext
from skillstream_worker.performance import perform
from skillstream_worker.skill import Skill
from skillstream_worker.turn import FEWEST, MOST, TURN_S, Turn
from tests.client.bounds import soon
from tests.support.protocol_bench import ProtocolBench, staged

NOBODY = cast(TaskContext, None)


class HandClock(Clock):
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.s = 0.0

    def elapsed_s(self) -> float:
        return self.s


def test_a_turn_has_the_characters_that_took_its_time_before() -> None:
    clock = HandClock()
    turn = Turn(clock)

    def held(seconds: float) -> int:
        turn.begin()
        clock.s += seconds
        turn.end()
        return turn.begin()

    assert turn.begin() == 1
    assert held(TURN_S / 1000) == 1000
    assert held(TURN_S / 4) == 4000
    assert held(TURN_S * 2) == 2000
    assert held(0) == MOST
    assert held(60) == FEWEST


@pytest.mark.parametrize("piece", ["token ", "", {"page": 1}], ids=["text", "empty", "structured"])
@pytest.mark.parametrize("chunking", [Chunking(), Chunking.off()], ids=["merging", "unmerged"])
async def test_a_skill_that_never_awaits_leaves_others_their_turns(
    bench: ProtocolBench, chunking: Chunking, piece: str | dict[str, Any]
) -> None:
    publication = (await staged(bench, chunking)).publication
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def talk(message: str, context: TaskContext) -> AsyncGenerator[str | dict[str, Any], None]:
        for _ in range(500_000):
            if turns >= 20:
                return
            yield piece

    counting = asyncio.create_task(count())
    try:
        await soon(perform(Skill("talk", talk, chunking=chunking), "", NOBODY, publication, Limits()))
    finally:
        counting.cancel()
    assert turns >= 20
    await soon(publication.flush())


@pytest.mark.parametrize("chunking", [Chunking(), Chunking.off()], ids=["merging", "unmerged"])
async def test_nothing_is_no_piece(bench: ProtocolBench, chunking: Chunking) -> None:
    async def talk(message: str, context: TaskContext) -> AsyncGenerator[None, None]:
        yield None

    publication = (await staged(bench, chunking)).publication
    with pytest.raises(TypeError, match="not NoneType"):
        await soon(perform(Skill("talk", talk, chunking=chunking), "", NOBODY, publication, Limits()))
