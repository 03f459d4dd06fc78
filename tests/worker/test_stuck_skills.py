"""Skills that do not let go: their attempts end a grace period after they were told to, and nothing they do counts any more."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from skillstream import Client
from skillstream.task import Task
from skillstream_schemas.errors import Unpublishable
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, TaskContext, Worker
from tests.client.bounds import soon, until
from tests.support.verbs import BOUND_S, Gates

from .conftest import StartWorker
from .view import View

AGENT = "stuck"
GRACE_S = 0.2
End = Callable[[Worker, Task], Awaitable[None]]


class Stubborn:
    """Responsible for skills that go on whatever they are told, until the gate `let go` opens."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self.refused: list[str] = []
        self.raise_at_end: BaseException | None = None

    def agent(self, **options: Any) -> Agent:
        """An agent with these skills; `options` are those of `Agent.skill`."""
        agent = Agent(AGENT)
        agent.skill("plain", **options)(self.plain)
        agent.skill("stream", **options)(self.stream)
        agent.skill("quick")(self.quick)
        return agent

    async def quick(self, message: str, context: TaskContext) -> str:
        """Ends at once."""
        return message

    async def plain(self, message: str, context: TaskContext) -> str:
        """Reports before and after."""
        await context.status("before")
        await self._hold(context)
        return "too late"

    async def stream(self, message: str, context: TaskContext) -> AsyncGenerator[str, None]:
        """Yields before and after."""
        yield "before"
        await self._hold(context)
        yield "too late"

    async def _hold(self, context: TaskContext) -> None:
        self._gates.open(f"holding {context.attempt}")
        while True:
            try:
                await self._gates.reached("let go")
                break
            except asyncio.CancelledError:
                self._gates.open("told")
        for step in (lambda: context.status("after"), lambda: anext(context.delegate(AGENT, "quick", "child"))):
            try:
                await step()
            except Unpublishable:
                self.refused.append("refused")
        self._gates.open("went on")
        if self.raise_at_end is not None:
            raise self.raise_at_end


@pytest.fixture
def stubborn(gates: Gates) -> Stubborn:
    return Stubborn(gates)


async def _cancel(worker: Worker, task: Task) -> None:
    await task.cancel("enough", timeout=BOUND_S)


async def _wait(worker: Worker, task: Task) -> None:
    await task.result(BOUND_S)


async def _stop(worker: Worker, task: Task) -> None:
    await soon(worker.stop(grace_s=0))


async def _until_free(worker: Worker) -> None:
    await until(lambda: "strays=0" in repr(worker))


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("skill", ["plain", "stream"])
@pytest.mark.parametrize(
    ("end", "bounds", "on_retry", "said"),
    [
        (_cancel, {}, "restart", ("canceled", None, "enough")),
        (_wait, {"timeout": 0.7}, "restart", ("failed", "timeout", "the skill ran longer than 0.7 s")),
        (_wait, {"deadline": 1.5}, "restart", ("failed", "deadline_exceeded", "the deadline passed while the skill ran")),
        (_stop, {}, "fail", ("failed", "interrupted", "the worker stopped and the skill is never run twice")),
    ],
    ids=["cancel", "timeout", "deadline", "drain"],
)
async def test_an_attempt_ends_though_its_skill_goes_on(
    start_worker: StartWorker, client: Client, view: View, gates: Gates, stubborn: Stubborn,
    skill: str, end: End, bounds: dict[str, float], on_retry: str, said: tuple[str, str | None, str],
) -> None:  # fmt: skip
    agent = stubborn.agent(timeout=bounds.get("timeout"), on_retry=on_retry)
    worker = await start_worker(agent, cancel_grace_s=GRACE_S)
    deadline = timedelta(seconds=bounds["deadline"]) if "deadline" in bounds else None
    task = await client.submit(AGENT, skill, "", deadline=deadline)
    await gates.reached("holding 1")
    await end(worker, task)
    final = view.final(task.id)
    assert (final["state"], final.get("error"), final["reason"]) == said
    assert final["text"] == ("before" if skill == "stream" else "")
    await until(lambda: view.arq_keys_of(task.id, AGENT) == [])
    before = view.entries(task.id)
    assert "strays=1" in repr(worker)
    gates.open("let go")
    await gates.reached("went on")
    await _until_free(worker)
    assert view.entries(task.id) == before
    assert stubborn.refused == ["refused", "refused"]
    assert view.queued(AGENT) == []


@pytest.mark.guarantee("G12")
async def test_a_drained_task_is_handed_back_though_its_skill_goes_on(
    start_worker: StartWorker, client: Client, view: View, gates: Gates, stubborn: Stubborn
) -> None:
    agent = stubborn.agent()
    first = await start_worker(agent, cancel_grace_s=GRACE_S)
    task = await client.submit(AGENT, "stream", "")
    await gates.reached("holding 1")
    await soon(first.stop(grace_s=0))
    assert view.shape(task.id) == ["submitted", "working", "chunk before", "drain"]
    assert view.lease(task.id, AGENT) is None
    score = view.score(task.id, AGENT)
    assert score is not None
    assert score <= view.now_ms()
    await start_worker(agent, name="w2")
    await gates.reached("holding 2")
    gates.open("let go")
    assert (await task.result(BOUND_S)).text == "beforetoo late"
    await _until_free(first)
    assert view.opening(task.id, 2)["strikes"] == "1"
    assert view.texts(task.id, 1) == ["before"]


@pytest.mark.guarantee("G4")
async def test_a_skill_that_goes_on_behind_a_lost_lease_is_left(
    start_worker: StartWorker, client: Client, view: View, gates: Gates, stubborn: Stubborn
) -> None:
    worker = await start_worker(stubborn.agent(), cancel_grace_s=GRACE_S, lease_s=1)
    task = await client.submit(AGENT, "stream", "")
    await gates.reached("holding 1")
    view.redis.set(f"arq:in-progress:{{{AGENT}}}:{task.id}", "other:1")
    await gates.reached("told")
    await until(lambda: "strays=1" in repr(worker))
    view.redis.delete(f"arq:in-progress:{{{AGENT}}}:{task.id}")
    await gates.reached("holding 2")
    gates.open("let go")
    assert (await task.result(BOUND_S)).text == "beforetoo late"
    assert [entry_id for entry_id in view.ids(task.id) if entry_id.startswith("1-")] == ["1-1", "1-2"]
    await _until_free(worker)


async def test_a_stray_keeps_its_slot_and_is_named(
    start_worker: StartWorker, client: Client, view: View, gates: Gates, stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    """Concurrency bounds what runs, and it does run."""
    worker = await start_worker(stubborn.agent(), cancel_grace_s=GRACE_S, concurrency=2)
    with caplog.at_level(logging.INFO):
        task = await client.submit(AGENT, "plain", "")
        await gates.reached("holding 1")
        await task.cancel("enough", timeout=BOUND_S)
        await until(lambda: "<Slots 1/2>" in repr(worker))
        other = await client.submit(AGENT, "quick", "x")
        assert (await other.result(BOUND_S)).text == "x"
        named = [record for record in caplog.records if "skill_stuck" in record.getMessage()]
        assert [record.levelno for record in named] == [logging.WARNING]
        assert f"{AGENT}/plain" in named[0].getMessage()
        assert task.id in named[0].getMessage()
        gates.open("let go")
        await _until_free(worker)
        assert "<Slots 0/2>" in repr(worker)


async def test_a_worker_full_of_strays_claims_nothing_and_says_so(
    start_worker: StartWorker, client: Client, view: View, gates: Gates, stubborn: Stubborn, caplog: pytest.LogCaptureFixture
) -> None:
    worker = await start_worker(stubborn.agent(), cancel_grace_s=GRACE_S, concurrency=1)
    task = await client.submit(AGENT, "plain", "")
    await gates.reached("holding 1")
    await task.cancel("enough", timeout=BOUND_S)
    await until(lambda: any(record.levelno == logging.ERROR and "skill_stuck" in record.message for record in caplog.records))
    waiting = await client.submit(AGENT, "quick", "x")
    assert view.shape(waiting.id) == ["submitted"]
    gates.open("let go")
    assert (await waiting.result(BOUND_S)).text == "x"
    await _until_free(worker)


@pytest.mark.parametrize("error", [ValueError("late"), SystemExit(3), KeyboardInterrupt()])
async def test_what_a_stray_raises_harms_nobody(
    start_worker: StartWorker, client: Client, gates: Gates, stubborn: Stubborn, error: BaseException
) -> None:
    stubborn.raise_at_end = error
    worker = await start_worker(stubborn.agent(), cancel_grace_s=GRACE_S)
    task = await client.submit(AGENT, "plain", "")
    await gates.reached("holding 1")
    await task.cancel("enough", timeout=BOUND_S)
    gates.open("let go")
    await _until_free(worker)
    assert (await (await client.submit(AGENT, "quick", "x")).result(BOUND_S)).state is TaskState.COMPLETED


@pytest.mark.guarantee("G9")
async def test_a_cancellation_does_not_wait_for_a_thread(start_worker: StartWorker, client: Client, view: View) -> None:
    """A thread cannot be killed: the attempt ends without it."""
    agent, in_thread, let_go, ended = Agent(AGENT), threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        in_thread.set()
        let_go.wait(BOUND_S)
        ended.set()

    @agent.skill("block")
    async def skill(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
        yield "before"
        await asyncio.to_thread(block)
        yield "after"

    await start_worker(agent, cancel_grace_s=GRACE_S)
    task = await client.submit(AGENT, "block", "")
    await until(in_thread.is_set)
    final = await task.cancel("enough", timeout=BOUND_S)
    assert (final.state, final.text, ended.is_set()) == (TaskState.CANCELED, "before", False)
    let_go.set()
    await until(ended.is_set)
    assert view.shape(task.id) == ["submitted", "working", "chunk before", "final canceled"]
