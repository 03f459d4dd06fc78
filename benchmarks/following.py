"""Thousands of followers in one process, one event a second each: how late, how much of a core, how many connections."""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import redis.asyncio

from skillstream import ChunkEvent, Client
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.settings import Settings

from .measuring import Lab, Report, Target, quantile
from .processes import ProcessGroups, apart, apart_command
from .server import Server, running_server

OURS, PUBSUB = "skillstream", "pub/sub (redis-py), keeps nothing"
P50, P99, CPU, READING, CONNECTIONS = "p50", "p99", "CPU of a core", "reading connections", "connections"
TEXT = " " + "x" * 40
WARM_UP_S, PUBLISHING_S = 4.0, 60.0
_STEP_S = 0.002
_PUBLISHER = "publisher"


def measure(lab: Lab) -> Report:
    """Another process adds the events evenly; a follower's latency is from before the XADD to its own line."""
    streams, seconds = lab.size(5_000, 1_000), max(2.0, 10 * min(1.0, lab.scale))
    with running_server() as server:
        measures = {
            OURS: partial(_follow, server, follow_tasks, "streams", streams, seconds),
            PUBSUB: partial(_follow, server, listen, "channels", streams, seconds),
        }
        samples = lab.alternate(measures, required=[OURS])
    who = f"{streams:,} followers, one event a second each"
    return Report(
        "following",
        (
            *samples.figures(P50, "ms"),
            *samples.figures(P99, "ms"),
            *samples.figures(CPU, "%"),
            *samples.figures(CONNECTIONS, ""),
        ),
        (
            *samples.value(f"{who}: p99", OURS, P99, unit="ms", target=Target(25, is_ceiling=True)),
            *samples.value(f"{who}: CPU", OURS, CPU, unit="% of a core", target=Target(15, is_ceiling=True)),
            *samples.value(f"{who}: reading connections", OURS, READING, unit="", target=Target(1, is_ceiling=True)),
            *samples.ratio(f"{who}: CPU", OURS, PUBSUB, figure=CPU, better="lower"),
            *samples.ratio(f"{who}: p99", OURS, PUBSUB, figure=P99, better="lower"),
        ),
        samples.notes,
    )


def _follow(server: Server, follower: Any, target: str, streams: int, seconds: float) -> Mapping[str, float]:
    server.client.flushall()
    apart(prepare, url=server.url, streams=streams)
    publishing = apart_command(publish, "uvloop", url=server.url, streams=streams, target=target)
    with TemporaryDirectory(prefix="skillstream-bench-") as folder, ProcessGroups() as processes:
        processes.start(publishing, Path(folder, "publisher.log"))
        found: dict[str, float] = apart(follower, loop="asyncio", url=server.url, streams=streams, seconds=seconds)
    return found


async def prepare(url: str, streams: int) -> None:
    """Makes tasks that are being worked on, by the wire format alone."""
    request = TaskRequest(agent="bench", skill="noop", message="")
    submitted = {"type": "status", "state": "submitted", "v": "1", "at": "1", **request.to_fields()}
    opened = {"type": "status", "state": "working", "worker": "benchmark", "claim": "1", "strikes": "1", "at": "1"}
    async with redis.asyncio.Redis.from_url(url) as connection:
        pipeline = connection.pipeline(transaction=False)
        for number in range(streams):
            pipeline.xadd(_stream(number), submitted, id="0-1")
            pipeline.xadd(_stream(number), opened, id="1-1")
        await pipeline.execute()


async def publish(url: str, streams: int, target: str) -> None:
    """Adds one event a second to each stream or channel, evenly, until it is ended or its time is over."""
    async with redis.asyncio.Redis.from_url(url, client_name=_PUBLISHER) as connection:
        begun_s, sent = time.perf_counter(), 0
        while (elapsed_s := time.perf_counter() - begun_s) < PUBLISHING_S:
            pipeline = connection.pipeline(transaction=False)
            for place in range(sent, int(elapsed_s * streams)):
                number, seq, text = place % streams, place // streams + 2, repr(time.time()) + TEXT
                if target == "streams":
                    pipeline.xadd(_stream(number), {"type": "chunk", "text": text, "at": "1"}, id=f"1-{seq}")
                else:
                    pipeline.publish(f"channel:{number}", text)
            sent = int(elapsed_s * streams)
            await pipeline.execute()
            await asyncio.sleep(_STEP_S)


async def follow_tasks(url: str, streams: int, seconds: float) -> dict[str, float]:
    """Follows all tasks with one client, each by a coroutine of its own."""
    async with Client(url) as client, asyncio.TaskGroup() as followers:

        async def follow(number: int, note: Callable[[str], None]) -> None:
            async with aclosing(client.task(_task_id(number)).events()) as events:
                async for event in events:
                    if isinstance(event, ChunkEvent) and event.text:
                        note(event.text)

        return await _watch(url, lambda note: [followers.create_task(follow(n, note)) for n in range(streams)], seconds)


async def listen(url: str, streams: int, seconds: float) -> dict[str, float]:
    """Listens to all channels on one connection of redis-py."""
    async with redis.asyncio.Redis.from_url(url) as connection, connection.pubsub() as channels, asyncio.TaskGroup() as listeners:
        await channels.subscribe(*(f"channel:{number}" for number in range(streams)))

        async def take(note: Callable[[str], None]) -> None:
            async for message in channels.listen():
                if message["type"] == "message":
                    note(message["data"].decode())

        return await _watch(url, lambda note: [listeners.create_task(take(note))], seconds)


async def _watch(
    url: str, start: Callable[[Callable[[str], None]], list[asyncio.Task[None]]], seconds: float
) -> dict[str, float]:
    late_ms: list[float] = []
    events = count()

    def note(text: str) -> None:
        late_ms.append(1000 * (time.time() - float(text.partition(" ")[0])))
        next(events)

    tasks = start(note)
    await asyncio.sleep(WARM_UP_S)
    late_ms.clear()
    used_s, begun_s = _cpu_s(), time.perf_counter()
    await asyncio.sleep(seconds)
    share = (_cpu_s() - used_s) / (time.perf_counter() - begun_s)
    found = {P50: quantile(late_ms, 0.5), P99: quantile(late_ms, 0.99), CPU: 100 * share}
    connections = await _connections(url)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {**found, **connections, "events/s": len(late_ms) / seconds}


async def _connections(url: str) -> dict[str, float]:
    """This process's connections, and those of them that read under CLIENT TRACKING or a subscription."""
    async with redis.asyncio.Redis.from_url(url, client_name="asker") as connection:
        asking: Callable[[], Awaitable[list[dict[str, str]]]] = connection.client_list
        others = [client for client in await asking() if client["name"] not in ("asker", _PUBLISHER)]
    reading = [client for client in others if "t" in client["flags"] or "P" in client["flags"]]
    return {CONNECTIONS: len(others) - 1, READING: len(reading)}  # one is the benchmark's own


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _task_id(number: int) -> str:
    return f"followed-{number}"


def _stream(number: int) -> str:
    return Settings().keys.events(_task_id(number))
