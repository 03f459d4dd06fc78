"""WebSockets: frames of a Society hub, nested and flat, for one task and for many; garbage ends nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.client.hand_worker import HandWorker
from tests.support.verbs import AGENT, Gates, script

from .conftest import PATIENCE_S, CallerAs, StartGateway, caller

Frame = dict[str, Any]


@asynccontextmanager
async def socket(gateway: Router, path: str, **headers: str) -> AsyncIterator[ClientConnection]:
    assert gateway.http is not None
    url = gateway.http.url.replace("http://", "ws://") + path
    async with asyncio.timeout(10), connect(url, additional_headers=headers, proxy=None, max_size=None) as opened:
        yield opened


async def frames(opened: ClientConnection) -> list[Frame]:
    """All frames until the socket closes."""
    return [json.loads(text) async for text in opened]


async def ask(opened: ClientConnection, method: str, rpc_id: int | None = 1, **params: Any) -> None:
    await opened.send(json.dumps({"jsonrpc": "2.0", "id": rpc_id, "method": method, "params": params}))


async def until(opened: ClientConnection, **wanted: Any) -> Frame:
    """The next frame that has these members."""
    async for text in opened:
        frame: Frame = json.loads(text)
        if all(frame.get(name) == value for name, value in wanted.items()):
            return frame
    raise AssertionError(f"the socket closed before {wanted}")


def ran(hand: HandWorker) -> None:
    """A task in two attempts, with all that can stand on a stream."""
    hand.submit("t")
    hand.open("t")
    hand.say("t", "Starting\n")
    hand.open("t", 2)
    hand.add("t", "2-2", type="status", state="working", text="Searching", progress=0.5)
    hand.say("t", 'One "1"\n', attempt=2, seq=3)
    hand.add("t", "2-4", type="chunk", mode="snapshot", data='{"n":1}')
    metadata = '{"agentId":"echo","agentName":"echo","sources":2}'
    hand.add("t", "2-5", type="final", state="completed", text='One "1"\n', metadata=metadata, chunks=1)


async def test_flat_frames_are_those_of_the_documentation(gateway: Router, hand: HandWorker) -> None:
    ran(hand)
    async with socket(gateway, "/v1/tasks/t/ws?form=flat") as opened:
        got = await frames(opened)
        assert opened.close_code == 1000
    assert [(frame["method"], frame["params"]["state"], frame["params"]["text"], frame["params"]["final"]) for frame in got] == [
        ("task.status", "working", "Starting\n", False),
        ("task.status", "working", "", False),
        ("task.status", "working", "Searching", False),
        ("task.status", "working", 'One "1"\n', False),
        ("task.status", "working", "", False),
        ("task.complete", "completed", 'One "1"\n', True),
    ]
    assert all((frame["jsonrpc"], frame["params"]["task_id"]) == ("2.0", "t") for frame in got)
    assert got[1]["params"]["metadata"] == {"code": "attempt_restarted", "attempt": 2, "keep": 0}
    assert (got[4]["params"]["data"], got[4]["params"]["metadata"]) == ({"n": 1}, {"mode": "snapshot"})
    assert got[5]["params"]["metadata"] == {"agentId": "echo", "agentName": "echo", "sources": 2}


async def test_nested_frames_are_those_of_the_wire(gateway: Router, hand: HandWorker) -> None:
    ran(hand)
    async with socket(gateway, "/v1/tasks/t/ws") as opened:
        got = await frames(opened)
    assert got[3] == {
        "jsonrpc": "2.0", "id": "t:2-3", "method": "task.status",
        "params": {
            "task_id": "t",
            "status": {"state": "working", "message": {"role": "agent", "parts": [{"type": "text", "text": 'One "1"\n'}]}},
            "final": False,
            "event": {"id": "2-3", "type": "chunk"},
        },
    }  # fmt: skip
    complete = got[-1]["params"]
    assert (complete["status"]["state"], complete["final"]) == ("completed", True)
    assert complete["status"]["message"] == {"role": "agent", "parts": [{"type": "text", "text": 'One "1"\n'}]}
    (part,) = got[4]["params"]["status"]["message"]["parts"]
    assert (part["type"], part["data"]["payload"]) == ("data", {"n": 1})
    assert len({frame["id"] for frame in got}) == len(got)


async def test_a_socket_that_broke_goes_on_behind_its_cursor(gateway: Router, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    hand.say("t", "a", "b")
    async with socket(gateway, "/v1/tasks/t/ws?form=flat") as opened:
        cursor = json.loads(await opened.recv())["params"]["event"]["id"]
    hand.say("t", "c", seq=4)
    hand.finish("t", "1-5", "abc", chunks=3)
    async with socket(gateway, f"/v1/tasks/t/ws?form=flat&after={cursor}") as opened:
        assert [frame["params"]["text"] for frame in await frames(opened)] == ["b", "c", "abc"]


async def test_many_tasks_run_over_one_socket(gateway: Router, worker: Worker) -> None:
    async with socket(gateway, "/v1/hub?form=flat") as opened:
        established = json.loads(await opened.recv())
        assert (established["method"], len(established["params"]["connection_id"])) == ("connection.established", 16)
        for number in range(5):
            parts = [{"type": "text", "text": script(["say", f"a{number}"], ["say", f"b{number}"])}]
            await ask(
                opened, "task.execute", number, id=f"t{number}", agent=AGENT, skill="stream", sessionId="chat",
                message={"role": "user", "parts": parts}, metadata={"n": number},
            )  # fmt: skip
        texts: dict[str, str] = {}
        answered = set()
        finals: dict[str, str] = {}
        while len(finals) < 5:
            frame = json.loads(await opened.recv())
            if "result" in frame:
                answered.add((frame["id"], frame["result"]["task_id"]))
            elif frame["params"]["final"]:
                finals[frame["params"]["task_id"]] = frame["params"]["text"]
            elif frame["params"]["event"]["type"] == "chunk":
                task_id = frame["params"]["task_id"]
                texts[task_id] = texts.get(task_id, "") + frame["params"]["text"]
    assert answered == {(number, f"t{number}") for number in range(5)}
    assert finals == texts == {f"t{number}": f"a{number}b{number}" for number in range(5)}


async def test_a_task_is_followed_and_cancelled_over_the_socket(gateway: Router, worker: Worker, gates: Gates) -> None:
    async with socket(gateway, "/v1/hub") as opened:
        message = {"parts": [{"type": "text", "text": script(["say", "part"], ["reach", "running"], ["wait", "never"])}]}
        await ask(opened, "task.execute", agent=AGENT, message=message)
        task_id = (await until(opened, id=1))["result"]["task_id"]
        await gates.reached("running")
        await ask(opened, "heartbeat", 2)
        await until(opened, method="heartbeat_ack")
        await ask(opened, "task.cancel", 3, task_id=task_id, reason="enough")
        by_kind: dict[str, Frame] = {}
        while len(by_kind) < 2:  # the answer and the end come in either order
            frame = json.loads(await opened.recv())
            if frame.get("method") == "task.complete" or frame.get("id") == 3:
                by_kind[frame.get("method", "answer")] = frame
        complete = by_kind["task.complete"]
        assert (complete["params"]["status"]["state"], complete["params"]["metadata"]["reason"]) == ("canceled", "enough")
        assert by_kind["answer"]["result"] == {"task_id": task_id, "state": "canceled"}
        await ask(opened, "task.follow", 4, task_id=task_id, after="1-1")
        assert (await until(opened, method="task.complete"))["id"] == complete["id"]


GARBAGE: list[tuple[str | bytes, int]] = [
    ("{", -32700), ("", -32700), ("\x00", -32700), (b"\xff\xfe", -32700), ("[" * 1000, -32700),
    ("[" + "1," * 300_000 + "1]", -32700), ("[]", -32600), ("1", -32600),
    ('{"id":1,"method":"heartbeat"}', -32600), ('{"jsonrpc":"2.0","id":{},"method":"heartbeat"}', -32600),
    ('{"jsonrpc":"2.0","id":1,"method":7}', -32600), ('{"jsonrpc":"2.0","id":1}', -32600),
    ('{"jsonrpc":"2.0","id":1,"method":"heartbeat","params":[]}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"fly"}', -32601), ('{"jsonrpc":"2.0","id":1,"method":"task.execute"}', -32000),
    ('{"jsonrpc":"2.0","id":1,"method":"task.follow","params":{"task_id":"nobody"}}', -32000),
    ('{"jsonrpc":"2.0","id":1,"method":"task.cancel","params":{"task_id":"a b"}}', -32000),
    ('{"jsonrpc":"2.0","id":1,"method":"task.execute","params":{"agent":"nobody","message":{"parts":[]}}}', -32000),
]  # fmt: skip


@pytest.mark.guarantee("G13")
async def test_garbage_is_answered_and_the_socket_lives(gateway: Router, hand: HandWorker) -> None:
    async with socket(gateway, "/v1/hub") as opened:
        await opened.recv()
        for frame, code in GARBAGE:
            await opened.send(frame)
            error = json.loads(await opened.recv())
            assert (error["jsonrpc"], error["error"]["code"]) == ("2.0", code), frame
            if code == -32000:
                assert set(error["error"]["data"]) == {"code", "message"}
        await ask(opened, "heartbeat", 9)
        await until(opened, id=9)


async def test_answers_of_the_other_side_are_taken_in_silence(gateway: Router) -> None:
    async with socket(gateway, "/v1/hub") as opened:
        await opened.recv()
        await opened.send('{"jsonrpc":"2.0","id":"t:1-2","result":{}}')
        await opened.send('{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}')
        await ask(opened, "heartbeat", 9)
        assert json.loads(await opened.recv())["method"] == "heartbeat_ack"


async def test_nothing_but_garbage_closes_the_socket(gateway: Router) -> None:
    async with socket(gateway, "/v1/hub") as opened:
        for _ in range(20):
            await opened.send("garbage")
        await frames_or_close(opened)
        assert opened.close_code == 1008


async def test_a_frame_over_the_limit_closes_the_socket(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(http_body_bytes=2048)
    async with socket(gateway, "/v1/hub") as opened:
        await opened.send("x" * 3000)
        await frames_or_close(opened)
        assert opened.close_code == 1009


async def frames_or_close(opened: ClientConnection) -> None:
    try:
        await frames(opened)
    except ConnectionClosed:
        pass


async def test_a_socket_asks_for_a_key_as_everything_does(
    caller_as: CallerAs, gateway: Router, hand: HandWorker, http_settings: Settings
) -> None:
    acme, other = await caller_as("acme"), await caller_as("other")
    hand.submit("t", payer="acme")
    hand.run("t", "x")
    mine, foreign = (each.headers["authorization"] for each in (acme, other))
    for path, headers, status in (
        ("/v1/hub", {}, 401), ("/v1/tasks/t/ws", {}, 401), ("/v1/tasks/t/ws", {"authorization": foreign}, 404),
        ("/v1/tasks/none/ws", {"authorization": mine}, 404), ("/v1/tasks/t/ws?form=round", {"authorization": mine}, 422),
        ("/v1/tasks/t/ws?after=x", {"authorization": mine}, 422),
    ):  # fmt: skip
        with pytest.raises(InvalidStatus) as refused:
            async with socket(gateway, path, **headers):
                pass
        assert refused.value.response.status_code == status, path
        assert set(json.loads(refused.value.response.body or b"")["error"]) == {"code", "message"}
    token = (await acme.post("/v1/tasks/t/token")).json()["token"]
    async with socket(gateway, f"/v1/tasks/t/ws?token={token}") as opened:
        assert (await frames(opened))[-1]["method"] == "task.complete"
    with pytest.raises(InvalidStatus):
        async with socket(gateway, f"/v1/hub?token={token}"):
            pass


async def test_a_page_of_another_origin_opens_no_socket(gateway: Router) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with socket(gateway, "/v1/hub", origin="https://evil.example"):
            pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("leaving", [False, True])
async def test_a_socket_that_leaves_ends_its_task_only_where_it_said_so(
    gateway: Router, hand: HandWorker, outside: redis.Redis, leaving: bool
) -> None:
    message = {"parts": [{"type": "text", "text": "x"}]}
    async with socket(gateway, "/v1/hub") as opened:
        await ask(opened, "task.execute", id="t", agent="echo", message=message, cancel_on_disconnect=leaving)
        await until(opened, id=1)
    async with caller(gateway) as http, asyncio.timeout(PATIENCE_S):
        if leaving:
            while (await http.get("/v1/tasks/t")).json()["state"] != "canceled":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        else:
            hand.run("t", "x")
            assert (await http.get("/v1/tasks/t")).json()["state"] == "completed"


async def test_a_gateway_that_stops_says_that_it_goes(http_settings: Settings, hand: HandWorker) -> None:
    hand.submit("t")
    router = Router(http_settings)
    await router.start()
    async with socket(router, "/v1/tasks/t/ws?cancel_on_disconnect=true") as opened:
        stopping = asyncio.create_task(router.__aexit__())
        await frames_or_close(opened)
        assert opened.close_code in (1001, 1012)
    await asyncio.wait_for(stopping, PATIENCE_S)
    assert [entry_id for entry_id, _ in hand.entries("t")] == ["0-1"]
