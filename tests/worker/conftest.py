"""Fixtures of the worker's tests: an agent driven by verbs, workers in this process, the view from outside."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis

from skillstream import Client
from skillstream.task import Task
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from tests.client.bounds import until
from tests.client.hand_worker import HandWorker
from tests.support.cutting_proxy import CuttingProxy
from tests.support.protocol_bench import ProtocolBench, port_of
from tests.support.verbs import AGENT, BOUND_S, Gates, script, verb_agent

from .intruder import Intruder
from .view import View
from .worker_process import NOBODY, ROOT, Spawn, WorkerProcess

Play = Callable[..., Awaitable[Task]]


class StartWorker(Protocol):
    """Starts a worker in this process; it is stopped at the end of the test at the latest."""

    async def __call__(self, *agents: Agent, name: str | None = None, **changes: Any) -> Worker:
        """`changes` are settings."""


@pytest.fixture
def gates() -> Gates:
    """Where the test and its skills meet."""
    return Gates()


@pytest.fixture
def agent(gates: Gates) -> Agent:
    """The agent `verbs` with default options."""
    return verb_agent(gates)


@pytest.fixture
def view(outside: redis.Redis, settings: Settings) -> View:
    """The broker from outside."""
    return View(outside, settings)


@pytest.fixture
def hand(outside: redis.Redis, settings: Settings) -> HandWorker:
    """Another worker, played by hand."""
    return HandWorker(outside, settings)


@pytest.fixture
async def bench(outside: redis.Redis, settings: Settings) -> AsyncIterator[ProtocolBench]:
    """The worker's seam to Redis, step by step."""
    async with ProtocolBench(outside, settings) as opened:
        yield opened


@pytest.fixture
async def proxy(settings: Settings) -> AsyncIterator[CuttingProxy]:
    """The wire to the server, which may be cut."""
    async with CuttingProxy(port_of(settings)) as opened:
        yield opened


@pytest.fixture
async def start_worker(settings: Settings) -> AsyncIterator[StartWorker]:
    """Starts workers and stops them."""
    started: list[Worker] = []

    async def start(*agents: Agent, name: str | None = None, **changes: Any) -> Worker:
        worker = Worker(agents, settings.changed(**changes), name=name)
        await worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in reversed(started):
        await worker.stop(grace_s=0)


@pytest.fixture
async def worker(start_worker: StartWorker, agent: Agent) -> Worker:
    """A running worker of the agent `verbs`."""
    return await start_worker(agent, name="w1")


@pytest.fixture
def begin(client: Client) -> Play:
    """Submits verbs to the agent `verbs`; options are those of `Client.submit`."""

    async def submit(*verbs: list[Any], skill: str = "stream", agent: str = AGENT, **options: Any) -> Task:
        return await client.submit(agent, skill, script(*verbs), **options)

    return submit


@pytest.fixture
def play(begin: Play) -> Play:
    """Submits verbs and waits for the final."""

    async def run(*verbs: list[Any], **options: Any) -> Task:
        task = await begin(*verbs, **options)
        await task.result(BOUND_S)
        return task

    return run


@pytest.fixture
def intruder(view: View, settings: Settings) -> Intruder:
    return Intruder(view, settings)


@pytest.fixture
async def works_after(worker: Worker, play: Play, view: View) -> AsyncIterator[None]:
    """After the test the worker runs a good task and the queue is empty."""
    yield
    task = await play(["say", "good"])
    assert view.final(task.id)["text"] == "good"
    await until(lambda: not view.queued())


@pytest.fixture
async def spawn_alone(tmp_path: Path) -> AsyncIterator[Spawn]:
    """Starts `skillstream worker` with arguments and no server; kills what is left at the end."""
    spawned: list[asyncio.subprocess.Process] = []
    environment = os.environ | {
        "SKILLSTREAM_SHARDS": "4", "SKILLSTREAM_POLL_S": "0.2", "SKILLSTREAM_CONNECT_TIMEOUT_S": "2",
        "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
    }  # fmt: skip

    async def start(*arguments: str, url: str = NOBODY, env: Mapping[str, str] | None = None) -> WorkerProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "skillstream", "worker", *arguments, "--redis", url,
            cwd=ROOT, env={**environment, **(env or {})},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, limit=1 << 20,
        )  # fmt: skip
        spawned.append(process)
        return WorkerProcess(process)

    yield start
    for process in spawned:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
def spawn(spawn_alone: Spawn, settings: Settings) -> Spawn:
    """Starts `skillstream worker` with arguments on the test's server."""
    assert settings.shards == 4
    return partial(spawn_alone, url=settings.redis_url)
