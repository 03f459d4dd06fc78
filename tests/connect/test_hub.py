"""The hub connector against a hub on loopback: what passes, and what a repetition does."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
import redis

from skillstream import Client
from skillstream_router.connect.hub import HubConnector
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, TaskContext, Worker
from tests.router.eventually import eventually
from tests.support.verbs import Gates, script

from .conftest import QUICK, StartConnector, open_deliveries
from .stub_hub import BOUND_S, StubHub, text_of


async def test_a_streaming_task_is_told_piece_by_piece_and_completed(connected: StartConnector, client: Client) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute(
            "t1", script(["progress", "Looking", 0.5], ["say", "One. "], ["status", "Again"], ["say", "Two."]), session="s1"
        )
        done = await hub.completed("t1")
    assert [text_of(call["params"]) for call in hub.received("task.status")] == ["Looking", "One. ", "Again", "Two."]
    assert hub.received("task.status")[0]["params"]["metadata"] == {"progress": 0.5}
    assert all(call["params"]["final"] is False for call in hub.received("task.status"))
    assert done == {
        "task_id": "t1",
        "status": {"state": "completed", "message": {"role": "agent", "parts": [{"type": "text", "text": "One. Two."}]}},
        "final": True,
        "metadata": {"agentId": "verbs", "agentName": "verbs"},
    }
    assert hub.execute_answers["x-t1"]["result"] == {"task_id": "t1", "status": {"state": "submitted"}}
    registration = hub.received("agent.register")[0]["params"]
    assert registration["agent_name"] == "verbs"
    assert [skill["id"] for skill in registration["agent_card"]["skills"]] == ["stream", "plain"]


async def test_all_known_agents_are_offered_each_on_a_connection_of_its_own(settings: Settings, agent: Agent) -> None:
    other = Agent("other")

    @other.skill("chat")
    async def chat(message: str, context: TaskContext) -> str:
        return f"other: {message}"

    worker = Worker([agent, other], settings, name="w1")
    await worker.start()
    try:
        async with StubHub() as hub, HubConnector(hub.address, (), settings, pace=QUICK) as connector:
            await asyncio.wait_for(connector.until_registered(), BOUND_S)
            assert connector.agents == ["other", "verbs"]
            assert {call["params"]["agent_name"] for call in hub.received("agent.register")} == {"other", "verbs"}
            assert hub.connections == 2
    finally:
        await worker.stop(grace_s=0)


async def test_an_answer_that_does_not_stream_is_only_completed(connected: StartConnector) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", script(["say", "The answer"]), metadata={"skill_id": "plain"})
        done = await hub.completed("t1")
    assert hub.received("task.status") == []
    assert text_of(done) == "The answer"


@pytest.mark.parametrize(
    ("verbs", "state", "error"),
    [
        ([["say", "part"], ["raise", "ValueError", "no"]], "failed", "skill_error"),
        ([["say", "Which?"], ["respond", {"status": "input-required", "metadata": {"v": 1}}]], "input-required", None),
    ],
)
async def test_other_ends_are_told_as_they_are(connected: StartConnector, verbs: Any, state: str, error: str | None) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", script(*verbs))
        done = await hub.completed("t1")
    assert done["status"]["state"] == state
    assert done["metadata"].get("error") == error


async def test_a_canceled_task_is_completed_as_canceled(
    connected: StartConnector, gates: Gates, client: Client, outside: redis.Redis
) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", script(["say", "part"], ["reach", "running"], ["wait", "never"]))
        await gates.reached("running")
        await client.task(gates.contexts[0].task_id).cancel("enough", timeout=BOUND_S)
        done = await hub.completed("t1")
    assert (done["status"]["state"], text_of(done)) == ("canceled", "part")


async def test_structured_output_is_a_data_part_under_one_id(connected: StartConnector) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", script(["book", "A", 1], ["book", "AB", 2]))
        done = await hub.completed("t1")
    shown = [call["params"]["status"]["message"]["parts"][0]["data"] for call in hub.received("task.status")]
    assert [part["payload"]["title"] for part in shown] == ["A", "AB"]
    assert {part["id"] for part in shown} == {"t1"}
    assert done["status"]["message"]["parts"][-1]["data"]["payload"] == {"title": "AB", "pages": 2}


@pytest.mark.guarantee("G6")
async def test_a_repeated_execute_runs_nothing_twice(connected: StartConnector, gates: Gates, outside: redis.Redis) -> None:
    words = script(["say", "once"], ["reach", "running"], ["wait", "go"])
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", words)
        await gates.reached("running")
        await hub.until(lambda: hub.received("task.status"), "the first words come")
        await hub.execute("t1", words, rpc_id="again while it runs")
        await hub.until(lambda: "again while it runs" in hub.execute_answers, "the repetition is answered")
        gates.open("go")
        await hub.completed("t1")
        await eventually(lambda: not open_deliveries(outside), "nothing is owed")
        await hub.execute("t1", words, rpc_id="again behind the end")
        await hub.until(lambda: "again behind the end" in hub.execute_answers, "the repetition is answered")
        await hub.execute("t1", script(["say", "other"]), rpc_id="another")
        await hub.until(lambda: "another" in hub.execute_answers, "the other request is answered")
    assert hub.execute_answers["again while it runs"]["result"]["status"]["state"] == "working"
    assert hub.execute_answers["again behind the end"]["result"]["status"]["state"] == "completed"
    assert hub.execute_answers["another"]["error"]["data"] == {"code": "invalid_request"}
    assert len(gates.contexts) == 1
    assert len(hub.received("task.complete")) == 1


async def test_a_call_whose_record_is_lost_is_answered_by_the_first_task(
    connected: StartConnector, gates: Gates, outside: redis.Redis
) -> None:
    async with StubHub() as hub:
        for payer in ("one", "another"):
            async with connected(hub, payer=payer):
                await hub.execute("t1", script(["say", "once"]), rpc_id=payer)
                await hub.until(partial(hub.execute_answers.__contains__, payer), "it is taken")
                await hub.completed("t1")
                await eventually(lambda: not open_deliveries(outside), "nothing is owed")
            outside.delete(*outside.scan_iter("skillstream:connect:*"))
    assert [text_of(call["params"]) for call in hub.received("task.complete")] == ["once", "once"]
    assert [context.payer for context in gates.contexts] == ["one"]


async def test_an_answer_to_input_required_is_the_next_turn_with_history(connected: StartConnector, gates: Gates) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", script(["say", "Which?"], ["respond", {"status": "input-required"}]))
        await hub.completed("t1")
        second = script(["say", "That."])
        await hub.execute("t1", second, rpc_id="second")
        await hub.until(lambda: len(hub.received("task.complete", "t1")) == 2, "the second turn is completed")
    states = [call["params"]["status"]["state"] for call in hub.received("task.complete", "t1")]
    assert states == ["input-required", "completed"]
    assert [turn["text"] for turn in gates.contexts[1].conversation_history][-1] == "Which?"
    assert gates.contexts[0].task_id != gates.contexts[1].task_id


async def test_tasks_of_a_session_share_a_context_and_others_do_not(connected: StartConnector, gates: Gates) -> None:
    async with StubHub() as hub, connected(hub, payer="the hub"):
        for task, session in (("a", "s1"), ("b", "s1"), ("c", "s2")):
            await hub.execute(task, script(["say", task]), session=session)
            await hub.completed(task)
    contexts = [context.context_id for context in gates.contexts]
    assert contexts[0] == contexts[1] != contexts[2]
    assert [turn["text"] for turn in gates.contexts[1].conversation_history] == [script(["say", "a"]), "a"]
    assert gates.contexts[2].conversation_history == []
    assert {context.payer for context in gates.contexts} == {"the hub"}


async def test_a_task_that_cannot_be_queued_is_completed_as_failed(connected: StartConnector, settings: Settings) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", "x", metadata={"skill_id": "fly"})
        await hub.execute("t2", "x" * (settings.limits.message_bytes + 1))
        unknown, large = await hub.completed("t1"), await hub.completed("t2")
    assert (unknown["status"]["state"], unknown["metadata"]["error"]) == ("failed", "unknown_skill")
    assert (large["status"]["state"], large["metadata"]["error"]) == ("failed", "message_too_large")


async def test_parts_of_a_message_are_text_and_data_and_others_are_left_out(connected: StartConnector, gates: Gates) -> None:
    parts = [
        {"type": "text", "text": "["}, {"type": "data", "data": {"a": 1}}, {"type": "file", "uri": "x"},
        {"type": "text", "text": '["say", "x"]]'},
    ]  # fmt: skip
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", "", message={"role": "user", "parts": parts}, metadata=None)
        assert text_of(await hub.completed("t1")) == "x"
    assert gates.contexts[0].data == [{"a": 1}]
