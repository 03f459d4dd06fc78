"""Fixtures of the worker's tests: an agent driven by verbs, workers in this process, the view from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pytest
import redis

from skillstream import Client
from skillstream.task import Task
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from tests.client.hand_worker import HandWorker
from tests.support.cutting_proxy import CuttingProxy
from tests.support.protocol_bench import ProtocolBench, port_of
from tests.support.verbs import AGENT, BOUND_S, Gates, script, verb_agent

from .view import View

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
