"""A skill that has another agent do a part."""

from __future__ import annotations

import pytest

from skillstream_schemas.state import TaskState
from skillstream_worker import Agent
from tests.client.bounds import soon, until
from tests.support.verbs import BOUND_S, Gates, script, verb_agent

from .conftest import Play, StartWorker
from .view import View

CHILD = script(["say", "from the "], ["progress", "p"], ["say", "child"])


@pytest.fixture
def helper(gates: Gates) -> Agent:
    return verb_agent(gates, "helper")


async def test_the_child_is_a_task_of_its_own(
    play: Play, view: View, agent: Agent, helper: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    await start_worker(agent, helper)
    task = await play(["delegate", "helper", "stream", CHILD], ["say", "done"], payer="acme", context_id="c1")
    assert view.final(task.id)["text"] == "done"
    (child,) = gates.children
    assert (child.state, child.text) == (TaskState.COMPLETED, "from the child")
    child_id = gates.contexts[1].task_id
    submission = view.entries(child_id)[0][1]
    assert (submission["parent"], submission["agent"], submission["payer"]) == (task.id, "helper", "acme")
    assert "context_id" not in submission
    assert view.metadata(child_id)["agentId"] == "helper"


async def test_the_child_may_run_on_another_worker(
    play: Play, view: View, agent: Agent, helper: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    await start_worker(helper, name="theirs")
    await start_worker(agent, name="ours", concurrency=1)
    await play(["delegate", "helper", "plain", CHILD])
    assert view.opening(gates.contexts[1].task_id)["worker"] == "theirs"
    assert gates.children[0].text == "from the "


async def test_a_second_attempt_finds_the_same_children(
    play: Play, view: View, agent: Agent, helper: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    await start_worker(agent, helper)
    other = script(["say", "another"])
    await play(["delegate", "helper", "stream", CHILD], ["delegate", "helper", "stream", other], ["attempt", 1, ["retry", 0]])
    assert [child.text for child in gates.children] == ["from the child", "another"] * 2
    assert [context.agent for context in gates.contexts] == ["verbs", "helper", "helper", "verbs"]


async def test_the_same_order_twice_is_two_children(
    play: Play, agent: Agent, helper: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    await start_worker(agent, helper)
    await play(["delegate", "helper", "stream", CHILD], ["delegate", "helper", "stream", CHILD])
    assert len({context.task_id for context in gates.contexts}) == 3


async def test_a_child_that_fails_is_for_its_parent_to_judge(
    play: Play, view: View, agent: Agent, helper: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    await start_worker(agent, helper)
    task = await play(["delegate", "helper", "stream", script(["raise", "ValueError", "child"])], ["say", "went on"])
    assert (gates.children[0].state, gates.children[0].error) == (TaskState.FAILED, "skill_error")
    assert view.final(task.id)["text"] == "went on"


@pytest.mark.parametrize(("agent_name", "skill", "code"), [("nobody", "x", "unknown_agent"), ("verbs", "x", "unknown_skill")])
async def test_delegating_to_what_is_not_there_is_an_error_of_the_skill(
    play: Play, view: View, agent: Agent, start_worker: StartWorker, agent_name: str, skill: str, code: str
) -> None:
    await start_worker(agent)
    task = await play(["say", "partial"], ["delegate", agent_name, skill, "x"])
    final = view.final(task.id)
    assert (final["error"], final["text"]) == ("skill_error", "partial")
    assert code in final["reason"]


async def test_a_parent_that_is_canceled_lets_go_of_its_child(
    begin: Play, view: View, agent: Agent, helper: Agent, gates: Gates, start_worker: StartWorker
) -> None:
    await start_worker(agent, helper)
    task = await begin(["delegate", "helper", "stream", script(["reach", "running"], ["wait", "end"])])
    await gates.reached("running")
    final = await soon(task.cancel("enough", timeout=BOUND_S))
    assert final.state is TaskState.CANCELED
    child_id = gates.contexts[1].task_id
    assert view.shape(child_id) == ["submitted", "working"]  # a task of its own: it goes on
    gates.open("end")
    await until(lambda: not view.queued("helper"))
