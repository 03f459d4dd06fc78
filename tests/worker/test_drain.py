"""Stopping a worker: what runs may end, the rest is handed back, nothing is left open."""

from __future__ import annotations

import asyncio

import pytest

from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Worker
from tests.client.bounds import soon, until
from tests.support.verbs import BOUND_S, Gates, verb_agent

from .conftest import Play, StartWorker
from .view import View


@pytest.mark.guarantee("G12")
async def test_a_skill_that_ends_within_the_grace_period_ends(begin: Play, view: View, worker: Worker, gates: Gates) -> None:
    task = await begin(["say", "a"], ["reach", "running"], ["wait", "end"], ["say", "b"])
    await gates.reached("running")
    stopping = asyncio.create_task(worker.stop(grace_s=BOUND_S))
    later = await begin(["say", "later"])
    gates.open("end")
    await soon(stopping)
    assert view.shape(task.id)[-1] == "final completed"
    assert view.final(task.id)["text"] == "ab"
    assert view.shape(later.id) == ["submitted"]  # no new tasks
    assert view.arq_keys_of(task.id) == []  # settled before the connection closed
    await later.cancel()


@pytest.mark.guarantee("G12")
async def test_a_skill_that_does_not_end_is_handed_back_at_once(
    begin: Play, view: View, worker: Worker, agent: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    task = await begin(["attempt", 1, ["say", "lost"], ["reach", "running"], ["wait", "never"]], ["say", "whole"])
    await gates.reached("running")
    await soon(worker.stop(grace_s=0))
    assert view.shape(task.id) == ["submitted", "working", "chunk lost", "drain"]
    assert view.lease(task.id) is None
    score = view.score(task.id)
    assert score is not None
    assert score <= view.now_ms()
    assert gates.endings == ["CancelledError"]
    await start_worker(agent, name="w2")
    final = await task.result(BOUND_S)
    assert (final.state, final.text) == (TaskState.COMPLETED, "whole")
    assert (view.opening(task.id, 2)["worker"], view.opening(task.id, 2)["strikes"]) == ("w2", "1")
    assert "resume_from" not in view.opening(task.id, 2)


@pytest.mark.guarantee("G12")
async def test_another_worker_takes_over_while_the_first_stops(
    begin: Play, view: View, agent: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    first = await start_worker(agent, name="w1")
    task = await begin(["attempt", 1, ["reach", "running"], ["wait", "never"]], ["say", "whole"])
    await gates.reached("running")
    await start_worker(agent, name="w2", poll_s=60)  # it hears of the job by the wake list
    await soon(first.stop(grace_s=0))
    assert (await task.result(BOUND_S)).text == "whole"
    assert [view.opening(task.id, attempt)["worker"] for attempt in (1, 2)] == ["w1", "w2"]


async def test_attempts_that_were_drained_do_not_count(begin: Play, view: View, gates: Gates, start_worker: StartWorker) -> None:
    agent = verb_agent(gates, max_attempts=1)
    task = None
    for attempt in range(1, 4):
        worker = await start_worker(agent)
        task = task or await begin(*(["attempt", n, ["reach", f"run {n}"], ["wait", "never"]] for n in range(1, 4)), ["say", "x"])
        await gates.reached(f"run {attempt}")
        await soon(worker.stop(grace_s=0))
    assert task is not None
    await start_worker(agent)
    assert (await task.result(BOUND_S)).state is TaskState.COMPLETED
    assert [view.opening(task.id, attempt)["strikes"] for attempt in range(1, 5)] == ["1"] * 4


async def test_a_drained_skill_goes_on_where_it_was(begin: Play, view: View, gates: Gates, start_worker: StartWorker) -> None:
    agent = verb_agent(gates, on_retry="resume")
    worker = await start_worker(agent)
    task = await begin(["attempt", 1, ["say", "ä🦶"], ["reach", "running"], ["wait", "never"]], ["attempt", 2, ["say_partial"]])
    await gates.reached("running")
    await soon(worker.stop(grace_s=0))
    await start_worker(agent)
    assert (await task.result(BOUND_S)).text == "ä🦶[ä🦶]"
    assert view.opening(task.id, 2)["resume_from"] == "2"
    assert view.texts(task.id, 2) == ["[ä🦶]"]


async def test_a_skill_that_is_never_run_twice_ends_as_interrupted(
    begin: Play, view: View, gates: Gates, start_worker: StartWorker
) -> None:
    worker = await start_worker(verb_agent(gates, on_retry="fail"))
    task = await begin(["say", "half"], ["reach", "running"], ["wait", "never"])
    await gates.reached("running")
    await soon(worker.stop(grace_s=0))
    final = view.final(task.id)
    assert (final["state"], final["error"], final["text"]) == ("failed", "interrupted", "half")
    assert view.arq_keys_of(task.id) == []


async def test_a_skill_that_ends_well_when_told_to_stop_has_ended(begin: Play, view: View, worker: Worker, gates: Gates) -> None:
    task = await begin(["say", "saved"], ["reach", "running"], ["swallow_cancel", "never"])
    await gates.reached("running")
    await soon(worker.stop(grace_s=0))
    assert (view.final(task.id)["state"], view.final(task.id)["text"]) == ("completed", "saved")


async def test_a_skill_that_goes_on_when_told_to_stop_is_handed_back(
    begin: Play, view: View, worker: Worker, gates: Gates, agent: Agent, start_worker: StartWorker
) -> None:
    task = await begin(["attempt", 1, ["reach", "running"], ["swallow_cancel", "never"], ["say", "no"], ["wait", "never"]])
    await gates.reached("running")
    await soon(worker.stop(grace_s=0))
    assert view.shape(task.id) == ["submitted", "working", "drain"]
    await start_worker(agent)
    assert (await task.result(BOUND_S)).text == ""


async def test_a_cancellation_wins_over_a_stop(begin: Play, view: View, worker: Worker, gates: Gates) -> None:
    task = await begin(["say", "a"], ["reach", "running"], ["swallow_cancel", "never"], ["wait", "never"])
    await gates.reached("running")
    stopping = asyncio.create_task(worker.stop(grace_s=0))
    await gates.reached("swallowed")
    final = await task.cancel("enough", timeout=BOUND_S)
    assert (final.state, final.reason, final.text) == (TaskState.CANCELED, "enough", "a")
    await soon(stopping)
    assert view.arq_keys_of(task.id) == []


async def test_stopping_twice_is_safe(worker: Worker) -> None:
    await soon(worker.stop())
    await soon(worker.stop())


async def test_a_worker_stops_at_any_moment_of_its_start(agent: Agent, settings: Settings, view: View) -> None:
    for turns in range(40):
        worker = Worker([agent], settings)
        await worker.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        await soon(worker.stop(grace_s=0))
    await until(lambda: len(view.redis.client_list(_type="normal")) == 1)


async def test_a_burst_ends_when_nothing_is_due(
    begin: Play, view: View, agent: Agent, settings: Settings, start_worker: StartWorker, gates: Gates
) -> None:
    first = await start_worker(agent)
    await soon(first.stop())
    tasks = [await begin(["say", str(n)]) for n in range(10)]
    delayed = await begin(["say", "later"], delay=60)
    async with Worker([agent], settings) as worker:
        await soon(worker.until_idle())
        assert [view.final(task.id)["text"] for task in tasks] == [str(n) for n in range(10)]
        assert view.shape(delayed.id) == ["submitted"]
    await delayed.cancel()
