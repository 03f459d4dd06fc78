"""Chunk events a second from `yield` to the stream, 100 tasks side by side, merging off; beside hand-written XADDs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

import redis.asyncio

from skillstream import Client
from skillstream.resp import new_parser, pack
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Chunking, TaskContext, Worker

from .measuring import Lab, Report, Target
from .processes import apart
from .server import Server, running_server

STREAMS = 100
TEXT = "x" * 40
FIELDS = {"type": "chunk", "text": TEXT, "at": "1796063972443"}
RATE = "events/s"
OURS = "skillstream"
AWAITED = "awaited XADD (redis-py)"
PIPELINE = "redis-py pipeline of 100"
PACKED = "ceiling: 100 XADDs packed by hand"
_TICK_S = 0.001


def measure(lab: Lab) -> Report:
    """Runs each way in a fresh process, all on uvloop."""
    ours, ceiling = lab.size(200_000, 50_000) // STREAMS, lab.size(100_000, 30_000)
    with running_server() as server:
        measures = {
            OURS: partial(_measure, server, skill_of_chunks, chunks=ours),
            PIPELINE: partial(_measure, server, pipelined, events=ceiling),
            PACKED: partial(_measure, server, packed_by_hand, events=ceiling),
        }
        if not lab.is_quick:
            measures[AWAITED] = partial(_measure, server, awaited, events=lab.size(10_000, 0))
        samples = lab.alternate(measures, required=[OURS])
    name = "chunk events/s, 100 tasks, merging off"
    return Report(
        "publishing",
        (*samples.figures(RATE, "events/s"),),
        (
            *samples.ratio(name, OURS, PIPELINE, figure=RATE, target=Target(1.2)),
            *samples.ratio(name, OURS, PACKED, figure=RATE, target=Target(0.4)),
            *samples.ratio(name, OURS, AWAITED, figure=RATE, target=Target(12)),
        ),
        samples.notes,
    )


def _measure(server: Server, way: Any, **sizes: Any) -> Mapping[str, float]:
    server.client.flushall()
    return {RATE: apart(way, url=server.url, **sizes)}


async def skill_of_chunks(url: str, chunks: int) -> float:
    """Events a second of 100 tasks that begin to yield together, until all finals are on the streams."""
    agent = Agent(name="chunky")
    together = asyncio.Barrier(STREAMS)
    begun_s: list[float] = []

    @agent.skill(name="chunks", chunking=Chunking.off())
    async def say(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
        await together.wait()
        begun_s.append(time.perf_counter())
        for _ in range(chunks):
            yield TEXT

    settings = Settings(redis_url=url, concurrency=STREAMS)
    async with Worker([agent], settings) as worker, Client(settings=settings) as client:
        tasks = await asyncio.gather(*(client.submit("chunky", "chunks", "") for _ in range(STREAMS)))
        while len(begun_s) < STREAMS or worker.running:
            await asyncio.sleep(_TICK_S)
        seconds = time.perf_counter() - begun_s[0]
    async with redis.asyncio.Redis.from_url(url) as outside:
        written = sum([await outside.xlen(task.stream) for task in tasks])
    if written != STREAMS * (chunks + 3):  # submission, opening and final beside the chunks
        raise RuntimeError(f"{written} entries stand on the streams instead of {STREAMS * (chunks + 3)}")
    return STREAMS * chunks / seconds


async def awaited(url: str, events: int) -> float:
    """Events a second of one XADD after the other."""
    async with redis.asyncio.Redis.from_url(url) as connection:
        begun_s = time.perf_counter()
        for _ in range(events):
            await connection.xadd("stream:0", FIELDS)
        return events / (time.perf_counter() - begun_s)


async def pipelined(url: str, events: int) -> float:
    """Events a second of pipelines with an XADD to each of 100 streams."""
    async with redis.asyncio.Redis.from_url(url) as connection:
        begun_s = time.perf_counter()
        for _ in range(events // STREAMS):
            pipeline = connection.pipeline(transaction=False)
            for number in range(STREAMS):
                pipeline.xadd(f"stream:{number}", FIELDS)
            await pipeline.execute()
        return events // STREAMS * STREAMS / (time.perf_counter() - begun_s)


async def packed_by_hand(url: str, events: int) -> float:
    """Events a second of 100 XADDs a write on a bare socket, packed and parsed by hiredis."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    parser = new_parser()
    fields = [part for pair in FIELDS.items() for part in pair]
    begun_s = time.perf_counter()
    for _ in range(events // STREAMS):
        writer.write(b"".join(pack(("XADD", f"stream:{number}", "*", *fields)) for number in range(STREAMS)))
        answers = 0
        while answers < STREAMS:
            parser.feed(await reader.read(65_536))
            while parser.gets() is not False:
                answers += 1
    seconds = time.perf_counter() - begun_s
    writer.close()
    await writer.wait_closed()
    return events // STREAMS * STREAMS / seconds
