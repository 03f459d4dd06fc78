"""How a task is canceled: queued, running, by nobody alive, at its end."""

from __future__ import annotations

import asyncio

import pytest

from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, Worker
from tests.client.bounds import soon, until
from tests.client.hand_worker import HandWorker
from tests.support.verbs import AGENT, BOUND_S, Gates

from .conftest import Play, StartWorker
from .view import View


@pytest.mark.guarantee("G9")
async def test_canceling_a_running_task_keeps_its_text_and_closes_the_skill(
    begin: Play, view: View, worker: Worker, gates: Gates
) -> None:
    task = await begin(["say", "partial"], ["reach", "running"], ["wait", "never"])
    await gates.reached("running")
    returned = await task.cancel("user left", timeout=BOUND_S)
    final = view.final(task.id)
    assert (final["state"], final["reason"], final["text"]) == ("canceled", "user left", "partial")
    assert "error" not in final
    assert (returned.state, returned.reason, str(returned.id)) == (TaskState.CANCELED, "user left", view.ids(task.id)[-1])
    assert gates.endings == ["CancelledError"]
    assert gates.contexts[0].cancelled.is_set()
    assert view.rings(task.id) == ["submitted", "opened", "cancel", "final"]
    await until(lambda: not view.queued())


@pytest.mark.guarantee("G9")
async def test_a_skill_that_swallows_its_cancellation_is_canceled(begin: Play, view: View, worker: Worker, gates: Gates) -> None:
    task = await begin(
        ["say", "a"], ["reach", "running"], ["swallow_cancel", "never"], ["say", "b"], ["wait", "after"], ["say", "c"]
    )
    await gates.reached("running")
    final = await task.cancel("enough", timeout=BOUND_S)
    assert (final.state, final.reason) == (TaskState.CANCELED, "enough")
    assert final.text == "".join(view.texts(task.id))
    assert gates.closed == [1]


@pytest.mark.guarantee("G9")
async def test_a_cancellation_that_nobody_announced_is_found(
    begin: Play, view: View, worker: Worker, gates: Gates, settings: Settings
) -> None:
    task = await begin(["say", "partial"], ["reach", "running"], ["wait", "never"])
    await gates.reached("running")
    view.redis.set(settings.keys.cancel(task.id), "key alone", px=60_000)
    final = await task.result(BOUND_S)
    assert (final.state, final.reason, final.text) == (TaskState.CANCELED, "key alone", "partial")


@pytest.mark.guarantee("G9")
async def test_canceling_a_queued_task_with_a_busy_worker(
    begin: Play, view: View, start_worker: StartWorker, agent: Agent, gates: Gates
) -> None:
    await start_worker(agent, concurrency=1)
    running = await begin(["reach", "running"], ["wait", "end"])
    await gates.reached("running")
    queued = await begin(["say", "never"])
    final = await soon(queued.cancel("changed my mind"))
    assert (final.state, final.text) == (TaskState.CANCELED, "")
    assert view.shape(queued.id) == ["submitted", "working", "final canceled"]
    assert view.opening(queued.id)["worker"] == "canceller"
    gates.open("end")
    assert (await running.result(BOUND_S)).state is TaskState.COMPLETED
    await until(lambda: not view.queued())
    assert len(gates.contexts) == 1


@pytest.mark.guarantee("G9")
async def test_canceling_without_any_worker(
    begin: Play, view: View, agent: Agent, hand: HandWorker, gates: Gates, start_worker: StartWorker
) -> None:
    hand.announce(*agent.card.skills, agent=AGENT)
    task = await begin(["say", "never"])
    assert (await soon(task.cancel("nobody there"))).state is TaskState.CANCELED
    assert view.queued() == []
    await start_worker(agent)
    assert (await task.cancel("again")).reason == "nobody there"
    assert gates.contexts == []


@pytest.mark.guarantee("G9")
async def test_a_task_canceled_after_its_worker_died_is_closed_by_the_next(
    begin: Play, view: View, agent: Agent, hand: HandWorker, gates: Gates, start_worker: StartWorker
) -> None:
    hand.announce(*agent.card.skills, agent=AGENT)
    task = await begin(["say", "never"])
    hand.open(task.id)
    hand.say(task.id, "of the dead")
    canceling = asyncio.create_task(task.cancel("too late for it", timeout=BOUND_S))
    await until(lambda: "cancel" in view.rings(task.id))
    await start_worker(agent)
    final = await canceling
    assert (final.state, final.reason, final.text) == (TaskState.CANCELED, "too late for it", "of the dead")
    assert view.shape(task.id) == ["submitted", "working", "chunk of the dead", "working", "final canceled"]
    assert view.opening(task.id, 2)["resume_from"] == "11"
    assert gates.contexts == []


async def test_canceling_a_task_that_ended_returns_its_final(play: Play, view: View, worker: Worker) -> None:
    task = await play(["say", "done"])
    before = view.entries(task.id)
    assert (await task.cancel("late")).state is TaskState.COMPLETED
    assert view.entries(task.id) == before
