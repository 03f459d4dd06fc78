"""Stock arq beside ours: its client enqueues skills, its worker runs them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Protocol

import arq
import pytest
from arq.connections import ArqRedis, RedisSettings
from arq.constants import abort_jobs_ss
from arq.jobs import Job, JobStatus

from skillstream import Client
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.job import pack, unpack
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Worker, arq_settings
from tests.client.bounds import soon, until
from tests.client.hand_worker import HandWorker
from tests.support.verbs import AGENT, BOUND_S, Gates, script

from .conftest import Play, StartWorker
from .view import View

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning")  # by arq itself
REQUEST = {"skill": "stream", "message": script(["say", "from "], ["progress", "p"], ["say", "stock"])}
POLL_S = 0.02


class StockClient:
    """Responsible for enqueueing as a service does that knows nothing but arq."""

    def __init__(self, pool: ArqRedis) -> None:
        self.pool = pool

    async def enqueue(self, task_id: str, request: dict[str, Any], **options: Any) -> Job | None:
        """Enqueues a skill's job; None where the same job is queued or has its result."""
        return await self.pool.enqueue_job(
            "run_skill", request, _job_id=f"{{{AGENT}}}:{task_id}", _queue_name=f"arq:queue:{{{AGENT}}}", **options
        )


@pytest.fixture
async def stock_client(settings: Settings) -> AsyncIterator[StockClient]:
    pool = await arq.create_pool(RedisSettings.from_dsn(settings.redis_url), job_serializer=pack, job_deserializer=unpack)
    yield StockClient(pool)
    await pool.aclose()


class StartStock(Protocol):
    """Starts a stock worker; `changes` are settings."""

    def __call__(self, agent: Agent, **changes: Any) -> StockWorker: ...


class StockWorker(arq.Worker):
    """An arq worker as it is, that tells when it has polled: cancelled in the midst of it, arq leaves a pipeline open."""

    def __init__(self, agent: Agent, settings: Settings) -> None:
        super().__init__(**arq_settings(agent, settings), poll_delay=POLL_S, handle_signals=False)
        self.polled = asyncio.Event()
        self.running = asyncio.create_task(self.async_run())

    async def _poll_iteration(self) -> None:
        await super()._poll_iteration()
        self.polled.set()

    async def stop(self) -> None:
        """Stops it as a signal does."""
        if not self.running.done():
            self.allow_pick_jobs = False
            self.polled.clear()
            await soon(self.polled.wait())
        await soon(self.close())
        await asyncio.gather(self.running, return_exceptions=True)


@pytest.fixture
async def start_stock(settings: Settings) -> AsyncIterator[StartStock]:
    """Starts unmodified arq workers and stops them, once their jobs have ended."""
    started: list[StockWorker] = []

    def start(agent: Agent, **changes: Any) -> StockWorker:
        started.append(StockWorker(agent, settings.changed(**changes)))
        return started[-1]

    yield start
    for worker in started:
        await until(lambda worker=worker: all(job.done() for job in worker.tasks.values()))  # type: ignore[misc]
        await worker.stop()


async def result_of(job: Job | None) -> dict[str, str]:
    """What a stock client gets."""
    assert job is not None
    result: dict[str, str] = await job.result(timeout=BOUND_S, poll_delay=POLL_S)
    return result


@pytest.mark.usefixtures("worker")
class TestStockClient:
    async def test_a_skill_runs_and_its_final_is_the_result(self, stock_client: StockClient, view: View) -> None:
        job = await stock_client.enqueue("t1", REQUEST | {"payer": "acme", "metadata": {"k": ["ü", 1]}})
        result = await result_of(job)
        assert result == view.final("t1")
        assert (result["state"], result["text"]) == ("completed", "from stock")
        submission = view.entries("t1")[0][1]
        assert (submission["agent"], submission["payer"], submission["metadata"]) == (AGENT, "acme", '{"k":["ü",1]}')
        assert view.rings("t1") == ["opened", "final"]
        await until(lambda: not view.queued())
        assert view.arq_keys_of("t1") == []
        assert 0 < view.redis.ttl(arq_keys.result(arq_keys.job_id(AGENT, "t1"))) <= 3600

    async def test_arq_reads_all_of_the_result(self, stock_client: StockClient) -> None:
        job = await stock_client.enqueue("t1", REQUEST)
        await result_of(job)
        assert job is not None
        info = await job.result_info()
        assert info is not None
        assert (info.function, info.success, info.job_try, info.queue_name) == ("run_skill", True, 1, f"arq:queue:{{{AGENT}}}")
        assert list(info.args) == [REQUEST]
        assert info.enqueue_time - timedelta(milliseconds=1) <= info.start_time <= info.finish_time  # arq rounds up
        assert await job.status() is JobStatus.complete

    @pytest.mark.parametrize(
        ("request_", "state", "error"),
        [
            (REQUEST | {"message": script(["raise", "ValueError", "boom"])}, "failed", "skill_error"),
            (REQUEST | {"message": script(["respond", {"status": "input-required"}])}, "input-required", None),
            (REQUEST | {"skill": "gone"}, "failed", "unknown_skill"),
            ({"skill": "stream"}, "failed", "malformed_request"),
        ],
    )
    async def test_states_are_data(
        self, stock_client: StockClient, request_: dict[str, Any], state: str, error: str | None
    ) -> None:
        result = await result_of(await stock_client.enqueue("t1", request_))
        assert (result["state"], result.get("error")) == (state, error)

    @pytest.mark.guarantee("G6")
    async def test_the_same_id_again_runs_nothing_twice(self, stock_client: StockClient, view: View, gates: Gates) -> None:
        await result_of(await stock_client.enqueue("t1", REQUEST))
        assert await stock_client.enqueue("t1", REQUEST) is None
        view.redis.delete(arq_keys.result(arq_keys.job_id(AGENT, "t1")))  # arq has forgotten it, the stream has not
        before = view.entries("t1")
        result = await result_of(await stock_client.enqueue("t1", REQUEST))
        assert result == view.final("t1")
        assert view.entries("t1") == before
        assert len(gates.contexts) == 1

    @pytest.mark.guarantee("G6")
    async def test_the_same_id_while_it_runs(self, stock_client: StockClient, gates: Gates) -> None:
        request = REQUEST | {"message": script(["reach", "running"], ["wait", "end"], ["say", "x"])}
        job = await stock_client.enqueue("t1", request)
        await gates.reached("running")
        assert await stock_client.enqueue("t1", request) is None
        gates.open("end")
        assert (await result_of(job))["text"] == "x"
        assert len(gates.contexts) == 1

    async def test_a_delay_of_arq_holds(self, stock_client: StockClient, view: View) -> None:
        queued_ms = view.now_ms()
        await result_of(await stock_client.enqueue("t1", REQUEST, _defer_by=0.4))
        assert int(view.opening("t1")["at"]) - queued_ms >= 399

    async def test_a_stock_task_is_followed_and_canceled_like_ours(
        self, stock_client: StockClient, gates: Gates, client: Client
    ) -> None:
        request = REQUEST | {"message": script(["say", "half"], ["reach", "running"], ["wait", "never"])}
        job = await stock_client.enqueue("t1", request)
        await gates.reached("running")
        assert (await client.task("t1").cancel("enough", timeout=BOUND_S)).text == "half"
        assert (await result_of(job))["reason"] == "enough"

    async def test_a_stock_abort_of_a_running_skill_does_not_harm_it(
        self, start_worker: StartWorker, stock_client: StockClient, gates: Gates, view: View
    ) -> None:
        request = REQUEST | {"message": script(["reach", "running"], ["wait", "end"], ["say", "x"])}
        job = await stock_client.enqueue("t1", request)
        assert job is not None
        await gates.reached("running")
        aborting = asyncio.create_task(job.abort(timeout=BOUND_S, poll_delay=POLL_S))
        await until(lambda: view.redis.exists(abort_jobs_ss))  # put there behind the score, which a renewal may restore at once
        await until(lambda: (view.score("t1") or 0) > view.now_ms())  # the next renewal restores the score
        gates.open("end")
        assert (await result_of(job))["text"] == "x"
        assert await aborting is False
        assert view.ids("t1")[:2] == ["0-1", "1-1"]
        view.redis.delete(abort_jobs_ss)

    async def test_a_retry_of_a_stock_task(self, stock_client: StockClient, view: View) -> None:
        message = script(["attempt", 1, ["retry", 0]], ["say", "second"])
        job = await stock_client.enqueue("t1", REQUEST | {"message": message})
        assert (await result_of(job))["text"] == "second"
        assert view.shape("t1")[:4] == ["submitted", "working", "retry", "working"]
        assert job is not None
        info = await job.result_info()
        assert info is not None
        assert info.job_try == 2


class TestStockWorker:
    async def test_a_task_of_our_client(
        self, begin: Play, view: View, agent: Agent, hand: HandWorker, start_stock: StartStock
    ) -> None:
        hand.announce(*agent.card.skills, agent=AGENT)
        task = await begin(["say", "by "], ["progress", "p"], ["say", "arq"])
        stock = start_stock(agent)
        final = await task.result(BOUND_S)
        assert (final.state, final.text) == (TaskState.COMPLETED, "by arq")
        assert "".join(view.texts(task.id)) == "by arq"
        await until(lambda: not view.queued())
        assert view.arq_keys_of(task.id) == []
        assert stock.jobs_failed == 0

    async def test_a_task_of_a_stock_client(
        self, stock_client: StockClient, view: View, agent: Agent, start_stock: StartStock
    ) -> None:
        start_stock(agent)
        result = await result_of(await stock_client.enqueue("t1", REQUEST))
        assert result == view.final("t1")
        assert result["text"] == "from stock"

    async def test_it_announces_the_agent(self, view: View, agent: Agent, start_stock: StartStock) -> None:
        start_stock(agent)
        await until(lambda: view.redis.hexists(view.keys.agents, AGENT))
        card = json.loads(view.redis.hget(view.keys.agents, AGENT))
        assert [skill["name"] for skill in card["skills"]] == ["stream", "plain"]

    async def test_a_retry_waits_for_its_delay(
        self, begin: Play, view: View, agent: Agent, hand: HandWorker, start_stock: StartStock
    ) -> None:
        hand.announce(*agent.card.skills, agent=AGENT)
        task = await begin(["attempt", 1, ["retry", 0.3]], ["say", "second"])
        start_stock(agent)
        assert (await task.result(BOUND_S)).text == "second"
        entries = dict(view.entries(task.id))
        assert int(entries["2-1"]["at"]) - int(entries["1-2"]["at"]) >= 290  # arq counts from its own start of the job
        await until(lambda: not view.queued())

    async def test_attempts_are_exhausted_by_our_count(
        self, begin: Play, view: View, agent: Agent, hand: HandWorker, start_stock: StartStock
    ) -> None:
        hand.announce(*agent.card.skills, agent=AGENT)
        task = await begin(["say", "x"], ["retry", 0])
        start_stock(agent)
        assert (await task.result(BOUND_S)).error == "attempts_exhausted"
        await until(lambda: not view.queued())
        assert view.opening(task.id, 3)["strikes"] == "3"

    async def test_a_running_task_is_canceled(
        self, begin: Play, agent: Agent, hand: HandWorker, gates: Gates, start_stock: StartStock, view: View
    ) -> None:
        hand.announce(*agent.card.skills, agent=AGENT)
        task = await begin(["say", "half"], ["reach", "running"], ["wait", "never"])
        start_stock(agent)
        await gates.reached("running")
        final = await task.cancel("enough", timeout=BOUND_S)
        assert (final.state, final.text) == (TaskState.CANCELED, "half")
        await until(lambda: not view.queued())

    async def test_a_stopped_worker_hands_back(
        self, begin: Play, view: View, agent: Agent, hand: HandWorker, gates: Gates, start_stock: StartStock
    ) -> None:
        hand.announce(*agent.card.skills, agent=AGENT)
        task = await begin(["attempt", 1, ["reach", "running"], ["wait", "never"]], ["say", "whole"])
        first = start_stock(agent)
        await gates.reached("running")
        await first.stop()
        assert view.shape(task.id) == ["submitted", "working", "drain"]
        assert view.lease(task.id) is None
        start_stock(agent)
        assert (await task.result(BOUND_S)).text == "whole"
        assert view.opening(task.id, 2)["strikes"] == "1"
        await until(lambda: not view.queued())

    async def test_bad_jobs_do_not_stop_it(
        self, play: Play, view: View, agent: Agent, hand: HandWorker, start_stock: StartStock
    ) -> None:
        hand.announce(*agent.card.skills, agent=AGENT)
        queue = arq_keys.queue(AGENT)
        for member, payload in [
            ("{verbs}:t1", b"\xc1"),
            ("stray", pack({"t": None, "f": "run_skill", "a": [], "k": {}, "et": 1})),
        ]:
            view.redis.set(arq_keys.job(member), payload, px=60_000)
            view.redis.zadd(queue, {member: view.now_ms()})
        bad_request = pack({"t": None, "f": "run_skill", "a": [{"skill": "stream"}], "k": {}, "et": 1})
        view.redis.set(arq_keys.job("{verbs}:t2"), bad_request, px=60_000)
        view.redis.zadd(queue, {"{verbs}:t2": view.now_ms()})
        start_stock(agent)
        task = await play(["say", "good"])
        await until(lambda: not view.queued())
        assert view.final(task.id)["text"] == "good"
        assert view.final("t2")["error"] == "malformed_request"

    @pytest.mark.guarantee("G4")
    async def test_while_fenced_it_waits_for_the_final(
        self, begin: Play, view: View, agent: Agent, hand: HandWorker, gates: Gates, start_stock: StartStock
    ) -> None:
        hand.announce(*agent.card.skills, agent=AGENT)
        task = await begin(["say", "mine"], ["reach", "running"], ["wait", "end"], ["say", "late"])
        start_stock(agent)
        await gates.reached("running")
        await until(lambda: view.texts(task.id) == ["mine"])
        hand.open(task.id, 2, claim=int(view.opening(task.id)["claim"]) + 1)
        gates.open("end")
        await until(lambda: gates.closed == [1])
        assert view.queued() == [arq_keys.job_id(AGENT, task.id)]
        assert len(view.arq_keys_of(task.id)) == 3  # arq has not finished the job of the other attempt
        hand.add(task.id, "2-2", type="final", state="completed", text="theirs", metadata="{}", chunks=0)
        await until(lambda: not view.queued())
        assert view.ids(task.id) == ["0-1", "1-1", "1-2", "2-1", "2-2"]

    @pytest.mark.guarantee("G1", "G4")
    async def test_while_fenced_by_nobody_it_tries_again(
        self, begin: Play, view: View, agent: Agent, gates: Gates, hand: HandWorker, start_stock: StartStock
    ) -> None:
        hand.announce(*agent.card.skills, agent=AGENT)
        task = await begin(["attempt", 1, ["reach", "running"], ["wait", "end"], ["say", "late"]], ["say", "third"])
        stock = start_stock(agent, lease_s=0.2)
        await gates.reached("running")
        hand.open(task.id, 2, claim=int(view.opening(task.id)["claim"]) + 1)
        gates.open("end")
        assert (await task.result(BOUND_S)).text == "third"
        await until(lambda: not view.queued())
        assert stock.jobs_retried == 1
        assert view.opening(task.id, 3)["strikes"] == "3"


async def test_ours_and_stock_on_one_queue_run_each_task_once(
    begin: Play, view: View, agent: Agent, gates: Gates, start_worker: StartWorker, start_stock: StartStock
) -> None:
    ours: Worker = await start_worker(agent, concurrency=2)
    start_stock(agent)
    tasks = await asyncio.gather(*(begin(["say", str(n)]) for n in range(40)))
    finals = await asyncio.gather(*(task.result(BOUND_S) for task in tasks))
    assert [final.text for final in finals] == [str(n) for n in range(40)]
    assert len(gates.contexts) == 40
    await until(lambda: not view.queued() and not ours.running)
