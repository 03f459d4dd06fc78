"""Events over HTTP: exactly the stream, from any cursor, live or over, whatever happens on the way."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import httpx
import pytest
import redis

from skillstream import Client
from skillstream_router.app import Router
from skillstream_schemas.settings import Settings
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually
from tests.router.ledger_file import LedgerFile

from .conftest import PATIENCE_S, StartGateway, caller
from .sse import error_of, follow, read_all

SEED = 20_240_229


def ids(events: list[dict[str, Any]]) -> list[str]:
    return [event.get("id", event["type"]) for event in events]


@pytest.mark.guarantee("G3")
async def test_events_are_what_the_client_sees(http: httpx.AsyncClient, hand: HandWorker, client: Client) -> None:
    hand.submit("t", payer="acme")
    hand.open("t")
    hand.add("t", "1-2", type="status", state="working", text='say "hi"', progress=0.5, metadata='{"a":[1]}')
    hand.say("t", "ü\n\u2028\x00 \U0001f600", '"\\', seq=3)
    hand.add("t", "1-5", type="chunk", mode="snapshot", data='{"n":1.5}')
    hand.finish("t", "1-6", 'ü\n\u2028\x00 \U0001f600"\\', chunks=2, data='{"n":2}', usage='{"tokens":3}')
    expected = [json.loads(event.model_dump_json(exclude_none=True)) async for event in client.task("t").events()]
    assert await read_all(http, "t") == expected
    assert await read_all(http, "t", after="1-3") == expected[4:]
    assert await read_all(http, "t", cursor="1-3", after="0") == expected[4:]


async def test_readers_that_split_lines_as_unicode_does_see_whole_events(http: httpx.AsyncClient, hand: HandWorker) -> None:
    said = "a\u2028b\u2029c\x85d\x0be\x1cf\u000cg"
    hand.submit("t", message=said)
    hand.open("t")
    hand.say("t", said)
    hand.add("t", "1-3", type="status", state="working", text=said)
    hand.finish("t", "1-4", said, chunks=1, reason=said)
    body = (await http.get("/v1/tasks/t/events")).text
    told = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]
    assert [line for line in body.splitlines() if line and not line.startswith(("data: ", "id: ", "retry: "))] == []
    assert (told[0]["request"]["message"], told[2]["text"], told[3]["text"], told[4]["reason"]) == (said,) * 4


async def test_a_follower_hears_events_as_they_come(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    async with asyncio.timeout(PATIENCE_S), follow(http, "t") as source:
        events = source.aiter_sse()
        assert (await anext(events)).id == "0-1"
        hand.open("t")
        assert (await anext(events)).id == "1-1"
        for number, text in enumerate("abc", 2):
            hand.say("t", text, seq=number)
            event = await anext(events)
            assert (event.id, json.loads(event.data)["text"]) == (f"1-{number}", text)
        hand.finish("t", "1-5", "abc", chunks=3)
        assert (await anext(events)).id == "1-5"
        with pytest.raises(StopAsyncIteration):
            await anext(events)


async def test_a_browser_at_the_final_is_told_not_to_come_back(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    hand.run("t", "x")
    response = await http.get("/v1/tasks/t/events", headers={"last-event-id": "1-3"})
    assert (response.status_code, response.content) == (204, b"")


async def test_a_restarted_attempt_is_a_reset(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    hand.say("t", "old")
    hand.open("t", 2, resume_from=2)
    hand.say("t", "d", attempt=2)
    hand.finish("t", "2-3", "old", chunks=1)
    assert ids(await read_all(http, "t")) == ["0-1", "1-1", "1-2", "reset", "2-1", "2-2", "2-3"]
    behind = await read_all(http, "t", cursor="1-2")
    assert ids(behind) == ["reset", "2-1", "2-2", "2-3"]
    assert behind[0] == {"type": "reset", "attempt": 2, "keep": 2}


async def test_silence_is_kept_alive(start_gateway: StartGateway, hand: HandWorker) -> None:
    gateway = await start_gateway(http_keep_alive_s=0.05)
    hand.submit("t")
    async with asyncio.timeout(PATIENCE_S), caller(gateway) as http, http.stream("GET", "/v1/tasks/t/events") as response:
        lines = response.aiter_lines()
        comments = 0
        async for line in lines:
            comments += line == ": keep-alive"
            if comments == 3 and line:
                hand.open("t")
                comments += 1
            if line == "id: 1-1":
                break
        assert comments >= 3


@pytest.mark.guarantee("G3")
async def test_a_follower_cut_a_hundred_times_sees_exactly_the_stream(http: httpx.AsyncClient, hand: HandWorker) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    hand.submit("t")
    hand.open("t")
    written = 1
    cursor, seen = None, []
    for cut in range(100):
        for _ in range(chance.randrange(6)):
            written += 1
            hand.say("t", f"<{written}>", seq=written)
        stay = chance.randrange(4)
        async with asyncio.timeout(PATIENCE_S), follow(http, "t", cursor=cursor) as source:
            events = source.aiter_sse()
            known = 0 if cursor is None else len(seen)
            for _ in range(min(stay + (cut == 0), written + 1 - known)):
                event = await anext(events)
                cursor = event.id
                seen.append(json.loads(event.data))
    hand.finish("t", f"1-{written + 1}", "".join(f"<{n}>" for n in range(2, written + 1)), chunks=written - 1)
    seen += await read_all(http, "t", cursor=cursor)
    assert ids(seen) == [entry_id for entry_id, _ in hand.entries("t")]
    assert "".join(event["text"] for event in seen if event["type"] == "chunk") == seen[-1]["text"]


async def test_a_reader_that_leaves_ends_nothing(http: httpx.AsyncClient, hand: HandWorker, outside: redis.Redis) -> None:
    hand.submit("t")
    hand.open("t")
    async with follow(http, "t", cursor="1-0") as source:
        assert (await anext(source.aiter_sse())).id == "1-1"
    assert await read_all_after_end(http, hand) == ["1-2"]
    assert not outside.exists(*[f"skillstream:task:{{{n}}}:t:cancel" for n in range(4)])


async def read_all_after_end(http: httpx.AsyncClient, hand: HandWorker) -> list[str]:
    hand.finish("t", "1-2", "", chunks=0)
    return ids(await read_all(http, "t", cursor="1-1"))


@pytest.mark.parametrize("how", ["query", "order"])
async def test_a_reader_may_ask_to_end_the_task_by_leaving(
    http: httpx.AsyncClient, hand: HandWorker, outside: redis.Redis, settings: Settings, how: str
) -> None:
    order = {"agent": "echo", "skill": "say", "message": "x", "task_id": "t"}
    async with asyncio.timeout(PATIENCE_S):
        if how == "query":
            await http.post("/v1/tasks", json=order)
            async with follow(http, "t", cancel_on_disconnect=True) as source:
                assert (await anext(source.aiter_sse())).id == "0-1"
        else:
            leaving = {**order, "stream": True, "cancel_on_disconnect": True}
            async with http.stream("POST", "/v1/tasks", json=leaving) as response:
                await anext(response.aiter_lines())
        events: Any = await read_all(http, "t")
    assert (events[-1]["state"], events[-1]["reason"]) == ("canceled", "the reader left")


def writing() -> int:
    """Followers of the gateway in this process that are still written to."""
    return sum("EventStream._write" in repr(task) for task in asyncio.all_tasks())


@pytest.mark.guarantee("G13")
async def test_a_slow_reader_holds_up_itself_alone(gateway: Router, http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    pieces = 1500
    for start in range(0, pieces, 100):
        hand.say("t", *["x" * 10_000] * 100, seq=2 + start)
    assert gateway.http is not None
    reader, writer = await asyncio.open_connection(gateway.http.host, gateway.http.port, limit=1024)
    try:
        writer.write(b"GET /v1/tasks/t/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        await reader.readuntil(b"id: 0-1")  # and reads no more
        async with asyncio.timeout(3 * PATIENCE_S), follow(http, "t", cursor="1-1") as source:
            seen = 0
            async for _ in source.aiter_sse():
                seen += 1
                if seen == pieces:
                    break
            hand.finish("t", f"1-{pieces + 2}", "x" * 10_000 * pieces, chunks=pieces)
        await eventually(lambda: writing() == 1, "the other one has left, this one still waits for its reader")
        answer = bytearray()
        while not answer.endswith(b"\r\n0\r\n\r\n") and (part := await asyncio.wait_for(reader.read(1 << 20), PATIENCE_S)):
            answer += part
        assert answer.count(b'"type":"final"') == 1
        assert answer.count(b'"type":"chunk"') == pieces
    finally:
        writer.close()


async def test_a_gateway_that_stops_ends_no_task(start_gateway: StartGateway, http_settings: Settings, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    first = Router(http_settings)
    await first.start()
    async with caller(first) as http, follow(http, "t", cancel_on_disconnect=True) as source:
        events = source.aiter_sse()
        assert [(await anext(events)).id for _ in range(2)] == ["0-1", "1-1"]
        stopping = asyncio.create_task(first.__aexit__())
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(StopAsyncIteration):
                await anext(events)
    await asyncio.wait_for(stopping, PATIENCE_S)
    hand.finish("t", "1-2", "", chunks=0)
    async with caller(await start_gateway()) as http:
        assert ids(await read_all(http, "t", cursor="1-1")) == ["1-2"]


async def test_a_cursor_past_retention_is_gone(
    http: httpx.AsyncClient, hand: HandWorker, outside: redis.Redis, settings: Settings, ledger_file: LedgerFile
) -> None:
    hand.submit("t")
    hand.run("t", "a", "b")
    outside.xadd(settings.keys.inbox_of("t"), {"task": "t", "kind": "final"})
    await eventually(lambda: ledger_file.task("t").get("state") == "completed", "the database has it")
    outside.xtrim(settings.keys.events("t"), minid="1-2", approximate=False)
    assert error_of(await http.get("/v1/tasks/t/events", headers={"last-event-id": "1-1"})) == (410, "gap")
    outside.delete(settings.keys.events("t"))
    assert error_of(await http.get("/v1/tasks/t/events", params={"after": "1-3"})) == (410, "gap")
    assert error_of(await http.get("/v1/tasks/t/events")) == (410, "gap")


async def test_a_hole_in_the_stream_is_an_error_and_the_end(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    hand.say("t", "lost", seq=3)
    hand.finish("t", "1-4", "lost", chunks=1)
    events = await read_all(http, "t")
    assert ids(events[:-1]) == ["0-1", "1-1"]
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("error", "stream_gap")


async def test_an_entry_that_is_none_is_an_error_behind_what_could_be_read(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    hand.add("t", "1-2", type="chunk", text="x", surplus="y")
    events = await read_all(http, "t")
    assert (ids(events[:-1]), events[-1]["error"]["code"]) == (["0-1", "1-1"], "malformed_entry")
    hand.submit("u")
    hand.add("u", "1-1", type="status", state="working", worker="w1")  # an opening without its claim
    events = await read_all(http, "u")
    assert (ids(events[:-1]), events[-1]["error"]["code"]) == (["0-1"], "malformed_entry")


async def test_followers_share_one_connection(http: httpx.AsyncClient, hand: HandWorker, outside: redis.Redis) -> None:
    hand.submit("t")
    hand.open("t")
    await http.get("/healthz")
    async with asyncio.timeout(PATIENCE_S):
        async with follow(http, "t") as source:
            await anext(source.aiter_sse())
            connections: Any = outside.client_list
            before = len(connections())
            readers = [asyncio.create_task(read_all(http, "t")) for _ in range(20)]
            async with follow(http, "t") as last:
                await anext(last.aiter_sse())
                assert len(connections()) == before
        hand.finish("t", "1-2", "", chunks=0)
        assert all(ids(events) == ["0-1", "1-1", "1-2"] for events in await asyncio.gather(*readers))
