"""The hub connector against a hub that is silent, refuses, or sends garbage."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import redis

from skillstream_router.connect.hub import HubAddress, HubConnector
from skillstream_router.connect.hub.sign_in import fetch_token
from skillstream_schemas.connect_errors import HubRefused
from skillstream_schemas.errors import InvalidSettings, UnknownAgent, UnknownSkill
from skillstream_schemas.settings import Settings
from tests.router.eventually import eventually
from tests.support.verbs import Gates, script

from .conftest import QUICK, StartConnector, open_deliveries
from .stub_hub import BOUND_S, StubHub, text_of


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


def vars_of(pace: Any) -> dict[str, float]:
    """The fields of a pace."""
    return {name: getattr(pace, name) for name in pace.__slots__}
