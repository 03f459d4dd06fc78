"""Bytes of an idle task, of a followed stream and of a running task; and whether a worker grows over 100,000 tasks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

import redis.asyncio

from skillstream import Client, Task
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker

from .agents import agent
from .contenders import OURS, a_run, announce
from .environments import Environments
from .measuring import Lab, Report, Samples, Target
from .processes import apart, resident_bytes
from .server import Server, running_server

STREAM, QUEUED = "bytes of an idle task's stream", "bytes on the broker of a queued task, all keys"
FOLLOWED, TRACKED = "bytes in the follower's process of a followed stream", "bytes on the broker of a followed stream"
RUNNING, GROWN = "bytes in the worker's process of a running task", "growth of the worker's process a task, bytes"
GROWN_CLIENT = "growth of the client's process a task, bytes"
NAMES = (STREAM, QUEUED, FOLLOWED, TRACKED, RUNNING)
_AT_ONCE = 1000
_GROWTH = 8
"""Bytes a task: 100,000 tasks may leave less than a megabyte."""
_RUN_S = 60.0
_LOOK_S = 0.01


def measure(lab: Lab) -> Report:
    """Each in fresh processes on an emptied server. The growth is measured once: it needs 100,000 tasks."""
    tasks, many = lab.size(5_000, 1_000), lab.size(100_000, 10_000)
    with running_server() as server:
        once = Lab(1, lab.scale, lab.is_quick, lab.environments, lab.say)
        measures = {OURS.name: partial(_sizes, server, tasks)}
        sizes = lab.alternate(measures, required=[OURS.name])
        growth = once.alternate({OURS.name: partial(_growth, lab.environments, server, many)}, required=[OURS.name])
    return Report(
        "memory",
        (*(figure for name in NAMES for figure in sizes.figures(name, "bytes")), *growth.figures(GROWN_CLIENT, "bytes")),
        (
            *(ratio for name in NAMES for ratio in sizes.value(name, OURS.name, name, unit="bytes")),
            *_judged(growth, f"{GROWN}, over {many:,} tasks"),
        ),
    )


def _judged(growth: Samples, name: str) -> Any:
    return growth.value(name, OURS.name, GROWN, unit="bytes", target=Target(_GROWTH, is_ceiling=True))


def _sizes(server: Server, tasks: int) -> Mapping[str, float]:
    server.client.flushall()
    asyncio.run(announce(server.url))
    before = server.used_bytes
    task_ids: list[str] = apart(submit, loop="asyncio", url=server.url, tasks=tasks)
    stream = server.client.memory_usage(Settings().keys.events(task_ids[0]), samples=0)
    found = {STREAM: float(stream), QUEUED: (server.used_bytes - before) / tasks}
    found |= apart(follow, loop="asyncio", url=server.url, task_ids=task_ids)
    server.client.flushall()
    found[RUNNING] = apart(run_all, url=server.url, tasks=tasks)
    return found


def _growth(environments: Environments, server: Server, tasks: int) -> Mapping[str, float]:
    with a_run(OURS, environments, server) as run:
        asyncio.run(announce(server.url))
        run.start_workers()
        run.go()
        worker, client = apart(run_many, loop="asyncio", url=server.url, tasks=tasks, worker_pid=run.worker_pid)
    return {GROWN: worker, GROWN_CLIENT: client}


async def submit(url: str, tasks: int) -> list[str]:
    """Submits tasks that nobody runs; returns their ids."""
    async with Client(url) as client:
        return [task.id for task in await _submitted(client, "wait", tasks)]


async def follow(url: str, task_ids: list[str]) -> dict[str, float]:
    """Bytes that this process and the broker hold for each stream that is followed and silent."""
    async with Client(url) as client, redis.asyncio.Redis.from_url(url) as outside:
        told = 0
        all_told = asyncio.Event()

        async def one(task: Task) -> None:
            nonlocal told
            async for _ in task.events():
                told += 1
                if told == len(task_ids):
                    all_told.set()

        async with aclosing(client.task(task_ids[0]).events()) as events:
            await anext(events)  # the connection and its buffers are not of any stream
        before, before_broker = _settled_bytes(), (await outside.info("memory"))["used_memory"]
        followers = [asyncio.create_task(one(client.task(task_id))) for task_id in task_ids]
        async with asyncio.timeout(_RUN_S):
            await all_told.wait()
        here, there = _settled_bytes() - before, (await outside.info("memory"))["used_memory"] - before_broker
        for follower in followers:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)
    return {FOLLOWED: here / len(task_ids), TRACKED: there / len(task_ids)}


async def run_all(url: str, tasks: int) -> float:
    """Bytes that a worker's process holds for each task that runs and waits, all at once."""
    settings = Settings(redis_url=url, concurrency=tasks)
    async with Client(settings=settings) as client:
        await announce(url)
        await _submitted(client, "wait", tasks)
        before = _settled_bytes()
        async with Worker([agent], settings) as worker, asyncio.timeout(_RUN_S):
            while len(worker.running) < tasks:
                await asyncio.sleep(_LOOK_S)
            return (_settled_bytes() - before) / tasks


async def run_many(url: str, tasks: int, worker_pid: int) -> tuple[float, float]:
    """What a worker's and a client's process grew by a task, once a fifth of the tasks has filled their caches."""
    settings = Settings(redis_url=url)
    sizes: list[tuple[int, int]] = []
    async with Client(settings=settings) as client, redis.asyncio.Redis.from_url(url) as outside:
        for _ in range(5):
            await _submitted(client, "noop", tasks // 5)
            while await outside.zcard(agent.queue):
                await asyncio.sleep(_LOOK_S)
            sizes.append((resident_bytes(worker_pid), _settled_bytes()))
            await outside.flushdb()  # what was kept for readers would fill the machine, not the processes
            await announce(url)
    grown = tuple((last - first) / (tasks - tasks // 5) for first, last in zip(sizes[0], sizes[-1], strict=True))
    return grown[0], grown[1]


async def _submitted(client: Client, skill: str, tasks: int) -> list[Task]:
    found: list[Task] = []
    while len(found) < tasks:
        at_once = min(_AT_ONCE, tasks - len(found))
        found += await asyncio.gather(*(client.submit("bench", skill, "0") for _ in range(at_once)))
    return found


def _settled_bytes() -> int:
    gc.collect()
    return resident_bytes()
