"""What a page and a person with a key find: CORS headers on every answer, and how /docs is told a key."""

from __future__ import annotations

import httpx
import pytest

from skillstream_router.app import Router
from skillstream_router.http.gateway import Gateway

from .conftest import StartGateway, caller
from .sse import error_of

PAGE = "https://app.example"


@pytest.fixture
async def for_pages(start_gateway: StartGateway) -> Router:
    """A gateway that a page may call, with one connection."""
    return await start_gateway(http_cors=(PAGE,), http_connections=1)


def may_read(answer: httpx.Response) -> bool:
    return bool(answer.headers.get("access-control-allow-origin") == PAGE)


async def test_a_page_can_read_a_fault(for_pages: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Gateway, caller: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Gateway, "agents", broken)
    async with caller(for_pages) as http:
        answer = await http.get("/v1/agents", headers={"origin": PAGE})
        assert (error_of(answer), may_read(answer)) == ((500, "internal_error"), True)


@pytest.mark.parametrize("path", ["/v1/agents", "/v1/chat/completions"])
async def test_a_page_can_read_that_the_gateway_is_busy(for_pages: Router, path: str) -> None:
    async with caller(for_pages) as first, caller(for_pages) as second, caller(for_pages) as third:
        assert (await first.get("/healthz")).status_code == 200  # its connection stays open
        answer = await second.get(path, headers={"origin": PAGE})
        assert (answer.status_code, may_read(answer), answer.headers["vary"]) == (503, True, "Origin")
        assert "retry-after" in answer.headers["access-control-expose-headers"]
        answer = await third.get(path, headers={"origin": "https://other.example"})
        assert (answer.status_code, answer.headers.get("access-control-allow-origin")) == (503, None)


async def test_where_no_page_may_read_nothing_says_so(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(http_connections=1)
    async with caller(gateway) as first, caller(gateway) as second:
        assert (await first.get("/healthz")).status_code == 200
        answer = await second.get("/v1/agents", headers={"origin": PAGE})
    assert answer.status_code == 503
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_the_schema_says_how_a_key_is_sent(http: httpx.AsyncClient) -> None:
    schema = (await http.get("/openapi.json")).json()
    schemes = schema["components"]["securitySchemes"]
    assert {(one["type"], one.get("scheme"), one.get("in"), one.get("name")) for one in schemes.values()} == {
        ("http", "bearer", None, None), ("apiKey", None, "header", "x-api-key"), ("apiKey", None, "query", "token"),
    }  # fmt: skip
    asked = {
        f"{method} {path}": {name for way in operation.get("security", schema["security"]) for name in way}
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    }
    assert {operation for operation, ways in asked.items() if not ways} == {"get /", "get /healthz"}
    by_token = {operation for operation, ways in asked.items() if "read token" in ways}
    assert by_token == {"get /v1/tasks/{task_id}", "get /v1/tasks/{task_id}/events"}
    assert all({"key", "key header"} <= ways for ways in asked.values() if ways)
    assert {} in schema["security"], "an open gateway asks for none"
