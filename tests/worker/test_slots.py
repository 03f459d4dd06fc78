"""A slot is held while a skill runs: what is written of it afterwards keeps no other from starting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skillstream_schemas.state import TaskState
from skillstream_worker import Agent
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
