"""A full broker, a slow follower, a flood: whoever cannot go on waits, and nothing is skipped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from skillstream import Client
from skillstream_router import Router
from skillstream_schemas.event import ChunkEvent, FinalEvent, StatusEvent
from skillstream_schemas.limits import KIB, Limits
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Chunking, TaskContext, Worker
from skillstream_worker.turn import MOST as TURN_CHARS
from tests.acceptance.checker import check
from tests.client.bounds import collected, soon
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, binaries

from .flood import flood

AGENT = "wordy"
PIECE = "word " * 100
_FLOOD = int(os.environ.get("FLOOD_TASKS", "2000"))


@pytest.fixture
def agent() -> Agent:
    agent = Agent(AGENT)

    @agent.skill("say", chunking=Chunking.off(), price_usd="0.01")
    async def say(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
        for number in range(int(message)):
            yield f"{number} {PIECE}"

    return agent


@pytest.fixture(params=list(binaries()))
def own_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server of this test alone, that may be filled."""
    with RedisServer(binaries()[request.param]) as server:
        yield server


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it waits for is in another process
            await asyncio.sleep(0.01)


def _refusals(outside: Any) -> int:
    """How often the server had no room for a command."""
    return sum(int(error["count"]) for name, error in outside.info("errorstats").items() if name.endswith(("OOM", "EXECABORT")))


def _is_refused_again(outside: Any, before: int) -> bool:
    return _refusals(outside) > before + 2


@pytest.mark.guarantee("G1", "G3", "G5", "G7", "G8")
async def test_writers_wait_for_a_full_broker_and_skip_nothing(own_server: RedisServer, agent: Agent, tmp_path: Path) -> None:
    """It has room for a part of what is to be written, three times over; then for all."""
    database = tmp_path / "router.db"
    settings = make_settings(own_server.url, patience_s=30, lease_s=30, database_url=f"sqlite:///{database}")
    client_of: Any = own_server.client()
    with client_of as outside:
        async with Worker([agent], settings) as worker, Router(settings), Client(settings=settings) as client:
            tasks = [await client.submit(AGENT, "say", "0")]  # scripts, groups and tables are there
            await tasks[0].result(20)
            refusals = 0
            for _ in range(3):
                outside.config_set("maxmemory", outside.info("memory")["used_memory"] + 512 * KIB)
                submitting = [asyncio.create_task(client.submit(AGENT, "say", "100", payer="acme")) for _ in range(10)]
                await _until(partial(_is_refused_again, outside, refusals))
                assert outside.info("stats")["evicted_keys"] == 0
                outside.config_set("maxmemory", 0)
                async with asyncio.timeout(20):
                    tasks += await asyncio.gather(*submitting)
                refusals = _refusals(outside)
            finals = [await task.result(20) for task in tasks]
            text = "".join(f"{number} {PIECE}" for number in range(100))
            assert [final.text for final in finals] == ["", *[text] * 30]
            await _until(lambda: not any(outside.xlen(key) for key in outside.scan_iter("skillstream:inbox:*")))
            await _until(lambda: not worker.running)
        report = check(own_server.url, str(database), [task.id for task in tasks])
    assert report.violations == []
    assert report.retries == 0
    assert report.charged_micros == 30 * 10_000


@pytest.mark.guarantee("G11")
async def test_a_skill_waits_once_its_buffer_is_full(own_server: RedisServer) -> None:
    """While the broker stands still it says a buffer's worth and what is left of its turn, and goes on when the broker does."""
    agent, said, many = Agent(AGENT), list[int](), 400
    going = asyncio.Event()

    @agent.skill("say")
    async def say(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
        yield "begun"
        await going.wait()
        for number in range(many):
            said.append(number)
            yield f"{number:04}" + "x" * 1020

    buffer_bytes = 64 * KIB
    settings = make_settings(own_server.url, lease_s=30).changed(limits=Limits(buffer_bytes=buffer_bytes))
    with own_server.client() as outside:
        async with Worker([agent], settings), Client(settings=settings) as client:
            task = await client.submit(AGENT, "say", "")
            await _until(lambda: outside.xlen(settings.keys.events(task.id)) == 3)
            own_server.pause()
            try:
                going.set()
                await _until(lambda: len(said) * KIB > buffer_bytes // 2)
                for _ in range(1000):  # turns of the event loop in which it could go on
                    await asyncio.sleep(0)
                assert buffer_bytes // 2 < len(said) * KIB < buffer_bytes + TURN_CHARS + 4 * KIB
            finally:
                own_server.resume()
            final = await task.result(20)
    assert final.text == "begun" + "".join(f"{number:04}" + "x" * 1020 for number in range(many))


@pytest.mark.guarantee("G3")
async def test_a_slow_follower_delays_nobody_and_misses_nothing(settings: Settings, outside: redis.Redis, agent: Agent) -> None:
    count = 3000
    async with Worker([agent], settings), Client(settings=settings) as client:
        task = await client.submit(AGENT, "say", str(count))
        slow = task.events()
        first = await soon(anext(slow))
        async with asyncio.timeout(20):
            final = await task.result()  # by a quick follower in the same process, while the slow one stands still
        other = await client.submit(AGENT, "say", "10")
        assert len([event for event in await collected(other.events()) if isinstance(event, ChunkEvent)]) == 10
        async with asyncio.timeout(20):
            rest = [event async for event in slow]
    assert isinstance(first, StatusEvent)
    assert first.request is not None
    assert [event.text for event in rest if isinstance(event, ChunkEvent)] == [f"{number} {PIECE}" for number in range(count)]
    assert isinstance(rest[-1], FinalEvent)
    assert rest[-1].text == final.text


@pytest.mark.timeout(1900)
@pytest.mark.guarantee("G1", "G7", "G8")
async def test_a_flood_of_submissions_ends(tmp_path: Path) -> None:
    """Some thousand here; `make flood` runs a hundred thousand (FLOOD_TASKS sets it)."""
    outcome = await flood(_FLOOD, tmp_path, patience_s=60 + _FLOOD / 100)
    print(outcome.line())
    assert outcome.faults == {}, outcome.line()
    assert (outcome.recorded, outcome.queued, outcome.rings) == (_FLOOD, 0, 0), outcome.line()
