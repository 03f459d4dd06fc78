"""The hub connector against a hub on loopback: what passes, and what a repetition, a refusal or garbage does."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
import redis

from skillstream import Client
from skillstream_router.connect.hub import HubAddress, HubConnector
from skillstream_router.connect.hub.sign_in import fetch_token
from skillstream_schemas.connect_errors import HubRefused
from skillstream_schemas.errors import InvalidSettings, UnknownAgent, UnknownSkill
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, TaskContext, Worker
from tests.router.eventually import eventually
from tests.support.verbs import Gates, script

from .conftest import QUICK, StartConnector
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


async def test_a_silent_hub_hears_the_end_again_under_one_id_until_it_answers_and_never_after(connected: StartConnector) -> None:
    async with StubHub() as hub, connected(hub):
        hub.silences = 3
        hub.completion_errors = [-32603]
        await hub.execute("t1", script(["say", "x"]))
        await hub.completed("t1")
        hub.silences = 3
        await hub.execute("t2", script(["say", "y"]))  # three pauses: time enough for a repetition of the first
        await hub.completed("t2")
    completions = hub.received("task.complete", "t1")
    assert len(completions) == 5
    assert len({json.dumps(call, sort_keys=True) for call in completions}) == 1
    assert len(hub.received("task.complete", "t2")) == 4


async def test_an_end_that_the_hub_refuses_for_good_is_not_said_again(
    connected: StartConnector, caplog: pytest.LogCaptureFixture, outside: redis.Redis
) -> None:
    async with StubHub() as hub, connected(hub):
        hub.completion_errors = [-32602]
        await hub.execute("t1", script(["say", "x"]))
        await hub.until(lambda: not hub.completion_errors, "the refusal is sent")
        await hub.execute("t2", script(["say", "y"]))
        await hub.completed("t2")
        await eventually(lambda: not open_deliveries(outside), "nothing is owed")
    assert len(hub.received("task.complete", "t1")) == 1
    assert "hub_refused" in caplog.text


@pytest.mark.guarantee("G13")
@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        ("{", -32700), (b"\xff\xfe", -32700), ("[]", -32600), ("7", -32600), ('{"id": [1], "method": "x"}', -32600),
        ('{"jsonrpc": "2.0", "id": 5}', -32600), ('{"jsonrpc": "2.0", "id": 5, "method": "task.fly"}', -32601),
        ('{"jsonrpc": "2.0", "id": 5, "method": "task.execute", "params": {"id": "t"}}', -32602),
        ('{"jsonrpc": "2.0", "id": 5, "method": "task.execute", "params": 3}', -32602),
        ("[" * 100_000, -32700), ('{"id": 1e999}', -32700),
    ],
)  # fmt: skip
async def test_garbage_is_answered_with_an_error_and_disturbs_nothing(
    connected: StartConnector, gates: Gates, garbage: Any, code: int
) -> None:
    async with StubHub() as hub, connected(hub):
        await hub.execute("t1", script(["say", "a"], ["reach", "running"], ["wait", "go"], ["say", "b"]))
        await gates.reached("running")
        await hub.say(garbage)
        await hub.until(lambda: any("error" in frame for _, way, frame in hub.frames if way == "in"), "the error comes")
        gates.open("go")
        assert text_of(await hub.completed("t1")) == "ab"
    errors = [frame for _, way, frame in hub.frames if way == "in" and "error" in frame]
    assert [error["error"]["code"] for error in errors] == [code]
    assert hub.connections == 1


async def test_what_nobody_waits_for_is_not_answered(connected: StartConnector) -> None:
    silent: list[Any] = [
        {"jsonrpc": "2.0", "method": "task.fly", "params": {}}, {"jsonrpc": "2.0", "id": "nobody's", "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "?"}}, {"jsonrpc": "2.0", "method": "heartbeat_ack"},
    ]  # fmt: skip
    async with StubHub() as hub, connected(hub):
        for frame in silent:
            await hub.say(frame)
        await hub.execute("t1", script(["say", "a"]))
        await hub.completed("t1")
    assert {frame.get("method", "answer") for _, way, frame in hub.frames if way == "in"} == {
        "agent.register", "answer", "task.status", "task.complete"
    }  # fmt: skip


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


async def test_heartbeats_go_both_ways_and_a_silent_hub_is_left(connected: StartConnector) -> None:
    pace = type(QUICK)(**{**vars_of(QUICK), "heartbeat_s": 0.1, "silence_s": 1})
    async with StubHub() as hub, connected(hub, pace=pace):
        await hub.say({"jsonrpc": "2.0", "method": "heartbeat", "params": {}})
        await hub.until(lambda: hub.heartbeats > 1, "heartbeats come")
        await hub.until(lambda: hub.connections > 1, "the silent hub is connected to again")


async def test_a_key_that_is_not_accepted_stops_the_connector(worker: object, settings: Settings) -> None:
    async with StubHub() as hub:
        hub.refuses_key = True
        with pytest.raises(HubRefused, match="key"):
            await asyncio.wait_for(HubConnector(hub.address, ["verbs"], settings, pace=QUICK).run(), BOUND_S)
        hub.refuses_key, hub.registration_error = False, "agent is owned by another user"
        with pytest.raises(HubRefused, match="owned"):
            await asyncio.wait_for(HubConnector(hub.address, ["verbs"], settings, pace=QUICK).run(), BOUND_S)


async def test_a_passing_refusal_is_tried_again(connected: StartConnector) -> None:
    async with StubHub() as hub:
        hub.registration_error = "too many agents just now"
        async with connected(hub) as connector:
            await hub.until(lambda: hub.connections > 2, "it comes back")
            hub.registration_error = None
            await asyncio.wait_for(connector.until_registered(), BOUND_S)


async def test_wrong_names_and_addresses_are_refused(worker: object, settings: Settings) -> None:
    with pytest.raises(UnknownAgent):
        await HubConnector(HubAddress("ws://127.0.0.1:1/x", "k"), ["nobody"], settings).start()
    with pytest.raises(UnknownSkill):
        await HubConnector(HubAddress("ws://127.0.0.1:1/x", "k"), ["verbs/fly"], settings).start()
    for url in ("http://hub", "ws://", "wss://user:word@hub/x"):
        with pytest.raises(InvalidSettings):
            HubAddress(url, "k")
    with pytest.raises(InvalidSettings, match="key"):
        HubAddress("ws://hub", "")
    address = HubAddress("wss://hub.example/agents", "secret")
    assert address.api_url == "https://hub.example"
    assert "secret" not in repr(address)
    assert callable(fetch_token)


def open_deliveries(outside: redis.Redis) -> list[str]:
    """Keys of what is owed."""
    return list(outside.scan_iter("skillstream:connect:*:open"))


def vars_of(pace: Any) -> dict[str, float]:
    """The fields of a pace."""
    return {name: getattr(pace, name) for name in pace.__slots__}
