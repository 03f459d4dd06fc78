"""Tokens a second from `yield` to the stream with merging on, and what publishing adds to the skill's own loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

import redis.asyncio

from skillstream import Client
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, TaskContext, Worker

from .measuring import Lab, Report, Target
from .processes import apart
from .server import Server, running_server

TOKEN = "token "
SIDE_BY_SIDE = 100
AT_ONCE = 100
OURS, BARE = "skillstream", "the bare generator"
ENTRIES_OF_100 = "ceiling: 100 tokens an XADD (redis-py)"
RATE, RATE_SIDE, LOOP = "tokens/s", "tokens/s, 100 tasks", "loop of 100,000 tokens, ms"
_TICK_S = 0.001


def measure(lab: Lab) -> Report:
    """Runs each way in a fresh process on uvloop; the loop times are brought to 100,000 tokens."""
    tokens = lab.size(100_000, 50_000)
    with running_server() as server:
        measures = {
            OURS: partial(_ours, server, tokens, only_one=lab.is_quick),
            BARE: partial(_bare, tokens),
            ENTRIES_OF_100: partial(_ceiling, server, tokens),
        }
        samples = lab.alternate(measures, required=[OURS, BARE])
    name = "tokens/s, 1 task, merging on"
    return Report(
        "tokens",
        (*samples.figures(RATE, "tokens/s"), *samples.figures(RATE_SIDE, "tokens/s"), *samples.figures(LOOP, "ms")),
        (
            *samples.value(name, OURS, RATE, unit="tokens/s", target=Target(400_000), better="higher"),
            *samples.ratio(name, OURS, ENTRIES_OF_100, figure=RATE),
            *samples.ratio(
                "the skill's loop of 100,000 tokens", OURS, BARE,
                figure=LOOP, target=Target(2.5, is_ceiling=True), better="lower",
            ),
        ),
        samples.notes,
    )  # fmt: skip


def _ours(server: Server, tokens: int, *, only_one: bool) -> Mapping[str, float]:
    server.client.flushall()
    rate, loop_s = apart(skill_of_tokens, url=server.url, tasks=1, tokens=tokens)
    found = {RATE: rate, LOOP: 1000 * loop_s * 100_000 / tokens}
    if not only_one:
        found[RATE_SIDE], _ = apart(skill_of_tokens, url=server.url, tasks=SIDE_BY_SIDE, tokens=tokens // SIDE_BY_SIDE)
    return found


def _bare(tokens: int) -> Mapping[str, float]:
    return {LOOP: 1000 * apart(bare_loop, tokens=tokens) * 100_000 / tokens}


def _ceiling(server: Server, tokens: int) -> Mapping[str, float]:
    server.client.flushall()
    return {RATE: apart(entries_of_100, url=server.url, tokens=tokens)}


async def skill_of_tokens(url: str, tasks: int, tokens: int) -> tuple[float, float]:
    """Tokens a second from the first yield to the last final on the stream, and seconds that one skill's loop took."""
    agent = Agent(name="talker")
    together = asyncio.Barrier(tasks)
    begun_s: list[float] = []
    ended_s: list[float] = []

    @agent.skill(name="talk")
    async def talk(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
        await together.wait()
        begun_s.append(time.perf_counter())
        for _ in range(tokens):
            yield TOKEN
        ended_s.append(time.perf_counter())

    settings = Settings(redis_url=url, concurrency=tasks)
    async with Worker([agent], settings) as worker, Client(settings=settings) as client:
        handles = await asyncio.gather(*(client.submit("talker", "talk", "") for _ in range(tasks)))
        while len(begun_s) < tasks or worker.running:
            await asyncio.sleep(_TICK_S)
        seconds = time.perf_counter() - begun_s[0]
        finals = await asyncio.gather(*(handle.result(10) for handle in handles))
    if any(final.text != TOKEN * tokens for final in finals):
        raise RuntimeError("a text on its stream is not the one that was yielded")
    return tasks * tokens / seconds, ended_s[0] - begun_s[0]


async def bare_loop(tokens: int) -> float:
    """Seconds of the same loop whose pieces nobody takes."""

    async def talk() -> AsyncGenerator[str, None]:
        for _ in range(tokens):
            yield TOKEN

    begun_s = time.perf_counter()
    async for _ in talk():
        pass
    return time.perf_counter() - begun_s


async def entries_of_100(url: str, tokens: int) -> float:
    """Tokens a second of awaited XADDs that carry the text of 100 tokens each."""
    fields: Any = {"type": "chunk", "text": TOKEN * AT_ONCE}
    async with redis.asyncio.Redis.from_url(url) as connection:
        begun_s = time.perf_counter()
        for _ in range(tokens // AT_ONCE):
            await connection.xadd("stream", fields)
        return tokens / (time.perf_counter() - begun_s)
