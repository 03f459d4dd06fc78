"""What is no proper request is refused in one shape, with a stable code, and disturbs nobody."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from skillstream_router.app import Router
from tests.client.hand_worker import HandWorker
from tests.support.redis_server import RedisServer, valkey_binary

from .conftest import PATIENCE_S, StartGateway, caller
from .sse import error_of

pytestmark = pytest.mark.guarantee("G13")
GOOD: dict[str, Any] = {"agent": "echo", "skill": "say", "message": "x"}
JSON = {"content-type": "application/json"}
Refusal = tuple[int, str]
NO_ORDERS: list[tuple[bytes, Refusal]] = [
    (b"{", (400, "malformed_json")), (b"\xff\xfe{}", (400, "malformed_json")), (b"[" * 100_000, (400, "malformed_json")),
    (b"[" + b"1," * 300_000 + b"1]", (400, "malformed_json")),
    (b'{"' + b'a":"b","' * 300_000 + b'a":1}', (400, "malformed_json")),
    (b"[" + b"{}," * 600_000 + b"{}]", (400, "malformed_json")), (b"[]", (422, "invalid_request")),
    (b"null", (422, "invalid_request")), (b"", (422, "invalid_request")), (b'"x"', (422, "invalid_request")),
]  # fmt: skip
BAD_ORDERS: list[tuple[dict[str, Any], Refusal]] = [
    ({"agent": None}, (422, "invalid_request")), ({"agent": "nobody"}, (404, "unknown_agent")),
    ({"agent": "a/b"}, (422, "invalid_name")), ({"skill": "fly"}, (404, "unknown_skill")),
    ({"surplus": 1}, (422, "invalid_request")),
    ({"message": 1}, (422, "invalid_request")), ({"message": "\ud800"}, (422, "invalid_request")),
    ({"message": "x" * (1024 * 1024 + 1)}, (413, "message_too_large")), ({"task_id": "a b"}, (422, "invalid_name")),
    ({"task_id": ""}, (422, "invalid_name")), ({"context_id": "../x"}, (422, "invalid_name")),
    ({"task_id": "."}, (422, "invalid_name")), ({"task_id": ".."}, (422, "invalid_name")),
    ({"context_id": ".."}, (422, "invalid_name")), ({"agent": "..."}, (422, "invalid_name")),
    ({"follows": "nobody"}, (404, "unknown_task")), ({"payer": ""}, (422, "invalid_request")),
    ({"deadline": "soon"}, (422, "invalid_request")), ({"deadline": "2030-01-01T00:00:00"}, (422, "invalid_request")),
    ({"deadline": "9999-12-31T23:59:59-14:00"}, (422, "invalid_request")),
    ({"delay_s": -1}, (422, "invalid_request")), ({"delay_s": 1e12}, (422, "invalid_request")),
    ({"metadata": [1]}, (422, "invalid_request")), ({"metadata": {"n": float("nan")}}, (422, "invalid_request")),
    ({"data": "\udfff"}, (422, "invalid_request")), ({"history": [{"role": "system", "text": ""}]}, (422, "invalid_request")),
]  # fmt: skip
NOT_THERE: list[tuple[str, str, Refusal]] = [
    ("GET", "/v1/tasks/nobody", (404, "unknown_task")), ("GET", "/v1/tasks/nobody/events", (404, "unknown_task")),
    ("GET", "/v1/tasks/a%20b", (422, "invalid_name")), ("GET", "/v1/tasks/t/events?after=x", (422, "invalid_name")),
    ("GET", "/v1/tasks/t/events?after=1-1-1", (422, "invalid_name")), ("GET", "/nowhere", (404, "not_found")),
    ("GET", "/v1/tasks/t/events?cancel_on_disconnect=perhaps", (422, "invalid_request")),
    ("DELETE", "/v1/tasks/t", (405, "method_not_allowed")), ("GET", "/v1/contexts/a%20b/messages", (422, "invalid_name")),
    ("GET", "/v1/contexts/c/messages?after=-1", (422, "invalid_request")),
    ("GET", "/v1/contexts/c/messages?limit=100000", (422, "invalid_request")),
    ("GET", f"/v1/contexts/c/messages?after={2**63}", (422, "invalid_request")),
    ("POST", "/v1/tasks/nobody/cancel", (404, "unknown_task")), ("POST", "/v1/tasks/nobody/token", (404, "unknown_task")),
]  # fmt: skip


async def test_a_body_that_is_no_order(http: httpx.AsyncClient) -> None:
    for body, expected in NO_ORDERS:
        assert error_of(await http.post("/v1/tasks", content=body, headers=JSON)) == expected, body[:20]


async def test_a_text_full_of_commas_is_one_value(http: httpx.AsyncClient, hand: HandWorker) -> None:
    order = {**GOOD, "message": 'a, \\", ' * 120_000}
    assert (await http.post("/v1/tasks", json=order)).status_code == 202


async def test_an_order_that_cannot_be_taken(http: httpx.AsyncClient, hand: HandWorker) -> None:
    for change, expected in BAD_ORDERS:
        order = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
        response = await http.post("/v1/tasks", content=json.dumps(order), headers=JSON)
        assert error_of(response) == expected, str(change)[:50]
    assert hand.queued() == {}
    assert (await http.post("/v1/tasks", json=GOOD)).status_code == 202


async def test_a_request_for_what_is_not_there(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    for method, path, expected in NOT_THERE:
        assert error_of(await http.request(method, path)) == expected, path


async def test_a_cursor_in_a_header_is_checked_too(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    for cursor in ("x", "1-", "99999999999999999999-1", "-1"):
        assert error_of(await http.get("/v1/tasks/t/events", headers={"last-event-id": cursor})) == (422, "invalid_name")


async def test_a_body_of_another_type_is_refused(http: httpx.AsyncClient, hand: HandWorker) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = await http.post("/v1/tasks", content=json.dumps(GOOD), headers={"content-type": content_type})
        assert error_of(response) == (415, "unsupported_media_type")
    assert hand.queued() == {}


async def test_a_body_over_the_limit_is_refused_however_it_is_sent(start_gateway: StartGateway, hand: HandWorker) -> None:
    gateway = await start_gateway(http_body_bytes=2048)
    body = json.dumps({**GOOD, "message": "x" * 3000}).encode()

    async def pieces() -> Any:
        for start in range(0, len(body), 1000):
            yield body[start : start + 1000]

    async with caller(gateway) as http:
        for content in (body, pieces()):
            assert error_of(await http.post("/v1/tasks", content=content, headers=JSON)) == (413, "body_too_large")
        assert (await http.post("/v1/tasks", json={**GOOD, "message": "x" * 1900})).status_code == 202


async def test_a_reason_over_the_limit_is_refused(http: httpx.AsyncClient, hand: HandWorker) -> None:
    hand.submit("t")
    response = await http.post("/v1/tasks/t/cancel", json={"reason": "x" * 70_000})
    assert error_of(response) == (422, "invalid_request")


async def test_no_value_of_a_request_stands_in_an_answer(http: httpx.AsyncClient) -> None:
    response = await http.post("/v1/tasks", json={**GOOD, "metadata": "private words"})
    assert error_of(response) == (422, "invalid_request")
    assert "private" not in response.text


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server of this test alone, that may be stopped."""
    with RedisServer(valkey_binary()) as server:
        yield server


async def test_a_broker_that_is_away_is_said_so(start_gateway: StartGateway, own_server: RedisServer) -> None:
    gateway = await start_gateway(redis_url=own_server.url, patience_s=0.5, connect_timeout_s=1, answer_timeout_s=1)
    async with caller(gateway) as http:
        assert (await http.get("/healthz")).status_code == 200
        own_server.stop()
        assert error_of(await http.get("/v1/tasks/t")) == (503, "broker_unavailable")
        health = await http.get("/healthz")
        assert (health.status_code, health.json()["code"]) == (503, "broker_unavailable")


ORDER = {"agent": "echo", "skill": "say", "message": "hi"}
CHAT = {"model": "echo/say", "messages": [{"role": "user", "content": "hi"}]}
AWAY = "the broker cannot be reached just now; ask again in a moment"
ASKED: list[tuple[str, str, Any]] = [
    ("GET", "/v1/agents", None), ("POST", "/v1/tasks", ORDER), ("GET", "/v1/tasks/t/events", None),
    ("POST", "/v1/tasks/t/cancel", None), ("GET", "/v1/models", None), ("POST", "/v1/chat/completions", CHAT),
    ("POST", "/v1/responses", {"model": "echo/say", "input": "hi"}),
]  # fmt: skip


@pytest.mark.parametrize("frozen", [False, True], ids=["gone", "frozen"])
async def test_a_caller_does_not_wait_for_a_broker_that_is_away(
    start_gateway: StartGateway, own_server: RedisServer, caplog: pytest.LogCaptureFixture, frozen: bool
) -> None:
    gateway = await start_gateway(redis_url=own_server.url, patience_s=60, http_patience_s=0.5)
    async with caller(gateway) as http:
        assert (await http.get("/healthz")).status_code == 200
        own_server.pause() if frozen else own_server.stop()
        try:
            for method, path, body in ASKED:
                started = time.monotonic()
                refused = await http.request(method, path, json=body)
                assert time.monotonic() - started < PATIENCE_S, path
                error = refused.json()["error"]
                assert (refused.status_code, error["code"]) == (503, "broker_unavailable")
                assert ("type" in error) == (path.split("/")[2] in ("models", "chat", "responses"))
                assert int(refused.headers["retry-after"]) > 0
                assert error["message"] == AWAY
        finally:
            if frozen:
                own_server.resume()
    assert str(own_server.port) in caplog.text, "the operator reads where it should have been"


async def test_a_stream_that_loses_its_broker_ends_in_the_same_words(
    start_gateway: StartGateway, own_server: RedisServer
) -> None:
    gateway = await start_gateway(redis_url=own_server.url, patience_s=1)
    with own_server.client() as outside:
        hand = HandWorker(outside, gateway.settings)
        hand.submit("t1")
    async with caller(gateway) as http, http.stream("GET", "/v1/tasks/t1/events") as stream:
        lines = stream.aiter_lines()
        while not (await anext(lines)).startswith("data: "):
            pass
        own_server.stop()
        told = [json.loads(line.removeprefix("data: ")) async for line in lines if line.startswith("data: ")]
    assert told == [{"type": "error", "error": {"code": "broker_unavailable", "message": AWAY}}]


async def test_the_address_itself_says_what_is_here(http: httpx.AsyncClient) -> None:
    front = (await http.get("/")).json()
    assert front["name"] == "skillstream"
    assert (front["docs"], front["openai"]) == ("/docs", "/v1")
    for place in ("docs", "openapi", "agents", "health"):
        assert (await http.get(front[place])).status_code == 200


async def test_the_page_describes_all_endpoints(gateway: Router, http: httpx.AsyncClient) -> None:
    page = (await http.get("/openapi.json")).json()
    assert {path for path in page["paths"] if path.startswith("/v1/")} >= {
        "/v1/tasks", "/v1/tasks/{task_id}", "/v1/tasks/{task_id}/events", "/v1/tasks/{task_id}/cancel",
        "/v1/tasks/{task_id}/token", "/v1/contexts/{context_id}/messages", "/v1/agents",
    }  # fmt: skip
    assert "message" in page["components"]["schemas"]["TaskOrder"]["required"]
    assert (await http.get("/docs")).status_code == 200
