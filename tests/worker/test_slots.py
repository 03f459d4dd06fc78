"""A slot is held while a skill runs: what is written of it afterwards keeps no other from starting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skillstream import Client
from skillstream_schemas.state import TaskState
from skillstream_worker import Agent, TaskContext
from skillstream_worker.broker import Finish, WorkerBroker
from tests.support.verbs import BOUND_S, Gates

from .conftest import Play, StartWorker
from .view import View


async def test_the_next_skill_starts_while_the_final_of_the_last_is_under_way(
    begin: Play, view: View, start_worker: StartWorker, agent: Agent, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, let_go = asyncio.Event(), asyncio.Event()
    finish = WorkerBroker.finish

    async def held(broker: WorkerBroker, *arguments: Any) -> Finish:
        under_way.set()
        await let_go.wait()
        return await finish(broker, *arguments)

    monkeypatch.setattr(WorkerBroker, "finish", held)
    worker = await start_worker(agent, concurrency=1)
    first = await begin(["say", "one"])
    async with asyncio.timeout(BOUND_S):
        await under_way.wait()
    second = await begin(["reach", "running"], ["wait", "end"])
    third = await begin(["say", "three"])
    await gates.reached("running")
    assert sorted(worker.running) == sorted([first.id, second.id])  # and the third waits: one skill runs
    assert "completed" not in view.shape(first.id)
    assert view.shape(third.id) == ["submitted"]
    let_go.set()
    gates.open("end")
    finals = await asyncio.gather(*(task.result(BOUND_S) for task in (first, second, third)))
    assert [final.state for final in finals] == [TaskState.COMPLETED] * 3


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_the_agents_of_a_worker_share_its_slots_and_each_gets_its_turn(
    client: Client, start_worker: StartWorker, concurrency: int
) -> None:
    running: set[str] = set()
    most = 0
    order: list[str] = []

    async def skill(message: str, context: TaskContext) -> str:
        nonlocal most
        running.add(context.task_id)
        order.append(context.agent)
        most = max(most, len(running))
        await asyncio.sleep(0.005)  # claims of the others come meanwhile
        running.discard(context.task_id)
        return message

    agents = [Agent(name=name) for name in ("one", "two", "three")]
    for agent in agents:
        agent.skill("work")(skill)
    await start_worker(*agents, concurrency=concurrency)
    tasks = [await client.submit(agent.name, "work", str(number)) for number in range(15) for agent in agents]
    finals = await asyncio.gather(*(task.result(BOUND_S) for task in tasks))
    assert {final.state for final in finals} == {TaskState.COMPLETED}
    assert most == concurrency
    assert {agent.name for agent in agents} <= set(order[:30])  # none waits until the others have nothing left
