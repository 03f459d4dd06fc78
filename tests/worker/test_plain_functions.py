"""Plain arq functions and cron jobs beside an agent's skills."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any, cast

import arq
import pytest
from arq.connections import ArqRedis, RedisSettings
from arq.cron import cron
from arq.typing import WorkerCoroutine
from arq.worker import Function

from skillstream_schemas.job import pack, unpack
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent
from tests.client.bounds import soon, until
from tests.support.verbs import BOUND_S, Gates

from .conftest import StartWorker
from .view import View

pytestmark = [
    pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning"),  # by arq itself
]
QUEUE = "arq:queue:{plain}:plain"


def named(function: Callable[..., Any], **options: Any) -> Function:
    """A method as an arq function of its name."""
    return arq.func(cast(WorkerCoroutine, function), name=function.__name__, **options)


class Functions:
    """Responsible for what plain functions of a test do."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates
        self.calls: list[tuple[Any, ...]] = []

    async def add(self, context: dict[Any, Any], *numbers: int, scale: int = 1) -> dict[str, int]:
        """Adds numbers."""
        self.calls.append((context["job_try"], *numbers))
        return {"sum": sum(numbers) * scale}

    async def fail(self, context: dict[Any, Any]) -> None:
        """Fails."""
        raise ValueError("boom")

    async def again(self, context: dict[Any, Any]) -> int:
        """Asks arq for another try, once."""
        if context["job_try"] == 1:
            raise arq.Retry
        return int(context["job_try"])

    async def hold(self, context: dict[Any, Any]) -> str:
        """Waits at a gate."""
        self.gates.open("running")
        await self.gates.reached("end")
        return "ended"

    async def tick(self, context: dict[Any, Any]) -> None:
        """A cron job."""
        self.gates.open("tick")


@pytest.fixture
def functions(gates: Gates) -> Functions:
    return Functions(gates)


@pytest.fixture
def plain_agent(functions: Functions) -> Agent:
    registered = [
        named(functions.add),
        named(functions.fail, max_tries=1),
        named(functions.again),
        named(functions.hold),
    ]
    agent = Agent("plain", functions=registered)

    @agent.skill("echo")
    async def echo(message: str, context: object) -> str:
        return message

    return agent


@pytest.fixture
async def pool(settings: Settings) -> AsyncIterator[ArqRedis]:
    """A stock arq client."""
    opened = await arq.create_pool(
        RedisSettings.from_dsn(settings.redis_url), job_serializer=pack, job_deserializer=unpack, default_queue_name=QUEUE
    )
    yield opened
    await opened.aclose()


async def test_a_function_runs_beside_skills(
    pool: ArqRedis, view: View, plain_agent: Agent, functions: Functions, start_worker: StartWorker
) -> None:
    await start_worker(plain_agent)
    job = await pool.enqueue_job("add", 1, 2, scale=10)
    assert job is not None
    assert await job.result(timeout=BOUND_S, poll_delay=0.02) == {"sum": 30}
    assert functions.calls == [(1, 1, 2)]
    assert view.queued("plain") == []


async def test_a_skill_runs_beside_functions(pool: ArqRedis, client: Any, plain_agent: Agent, start_worker: StartWorker) -> None:
    await start_worker(plain_agent)
    task = await client.submit("plain", "echo", "hello")
    assert (await task.result(BOUND_S)).text == "hello"


async def test_failures_and_tries_are_arqs_own(pool: ArqRedis, plain_agent: Agent, start_worker: StartWorker) -> None:
    await start_worker(plain_agent)
    again = await pool.enqueue_job("again")
    failing = await pool.enqueue_job("fail")
    assert again is not None
    assert failing is not None
    assert await again.result(timeout=BOUND_S, poll_delay=0.02) == 2
    with pytest.raises(arq.jobs.SerializationError):  # msgpack cannot pack exceptions
        await failing.result(timeout=BOUND_S, poll_delay=0.02)


async def test_a_skill_is_no_plain_function(pool: ArqRedis, plain_agent: Agent, start_worker: StartWorker) -> None:
    await start_worker(plain_agent)
    job = await pool.enqueue_job("run_skill", {"skill": "echo", "message": "x"})
    assert job is not None
    with pytest.raises(arq.jobs.SerializationError):
        await job.result(timeout=BOUND_S, poll_delay=0.02)


async def test_a_cron_job_runs(functions: Functions, gates: Gates, view: View, start_worker: StartWorker) -> None:
    at = datetime.now() + timedelta(seconds=30)  # not again within this test
    agent = Agent("plain", cron_jobs=[cron(cast(WorkerCoroutine, functions.tick), run_at_startup=True, second=at.second)])
    await start_worker(agent)
    await gates.reached("tick")
    await until(lambda: view.redis.zcard(QUEUE) == 0)
    for lease in view.redis.scan_iter("arq:in-progress:cron:*"):  # arq keeps it for a minute, so that it runs once
        view.redis.delete(lease)


async def test_a_running_function_is_put_back_at_a_stop(
    pool: ArqRedis, view: View, plain_agent: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    worker = await start_worker(plain_agent)
    job = await pool.enqueue_job("hold", _job_id="held")
    assert job is not None
    await gates.reached("running")
    await soon(worker.stop(grace_s=0))
    assert view.redis.zrange(QUEUE, 0, -1) == ["held"]
    assert view.redis.exists("arq:in-progress:held") == 0
    gates.open("end")
    await start_worker(plain_agent)
    assert await job.result(timeout=BOUND_S, poll_delay=0.02) == "ended"


async def test_a_worker_stops_with_many_functions_under_way(
    pool: ArqRedis, view: View, plain_agent: Agent, start_worker: StartWorker
) -> None:
    for n in range(50):
        await pool.enqueue_job("add", n)
    worker = await start_worker(plain_agent)
    await until(lambda: view.redis.zcard(QUEUE) < 50)
    await soon(worker.stop())
    await start_worker(plain_agent)
    await until(lambda: view.redis.zcard(QUEUE) == 0)
