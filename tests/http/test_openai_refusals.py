"""What OpenAI's clients are refused with, in their own shape and on their own paths alone; models; keys."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, NotFoundError

from skillstream_router.app import Router
from skillstream_schemas.card import SkillCard
from tests.client.hand_worker import HandWorker

from .conftest import CallerAs, StartGateway
from .openai_clients import body_of, openai_client
from .sse import error_of

pytestmark = pytest.mark.guarantee("G13")
HELLO: list[Any] = [{"role": "user", "content": "hi"}]
CHAT = {"model": "echo/say", "messages": HELLO}
JSON = {"content-type": "application/json"}
INVALID = (400, "invalid_request")


def refusal_of(response: httpx.Response) -> tuple[int, str, str | None]:
    """Status, code and param of a refusal in OpenAI's shape."""
    body = response.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"message", "type", "param", "code"}, body
    return response.status_code, body["error"]["code"], body["error"]["param"]


async def test_models_are_listed_and_looked_up(gateway: Router, hand: HandWorker) -> None:
    hand.announce(SkillCard(name="say"), SkillCard(name="deep/dive"))
    async with openai_client(gateway) as client:
        listed = [model async for model in client.models.list()]
        assert [(model.id, model.owned_by) for model in listed] == [("echo/say", "echo"), ("echo/deep/dive", "echo")]
        for model in listed:
            assert await client.models.retrieve(model.id) == model
        for unknown in ("echo/fly", "nobody/say", "say"):
            with pytest.raises(NotFoundError) as refused:
                await client.models.retrieve(unknown)
            assert (body_of(refused.value)["code"], body_of(refused.value)["param"]) == ("model_not_found", "model")


async def test_an_unknown_model(gateway: Router, http: httpx.AsyncClient, hand: HandWorker) -> None:
    async with openai_client(gateway) as client:
        for model in ("nobody/say", "echo/fly", "echo", "", "a b/say", "/", "echo/" + "x" * 300):
            with pytest.raises(NotFoundError) as chat:
                await client.chat.completions.create(model=model, messages=HELLO, stream=True)
            with pytest.raises(NotFoundError) as response:
                await client.responses.create(model=model, input="x")
            for refused in (chat.value, response.value):
                body = body_of(refused)
                assert (body["code"], body["param"], body["type"]) == ("model_not_found", "model", "invalid_request_error")
    odd = await http.post("/v1/chat/completions", content=json.dumps({**CHAT, "model": "echo/\udfff"}), headers=JSON)
    assert refusal_of(odd) == (404, "model_not_found", "model")
    assert hand.queued() == {}


async def test_a_wrong_key(gateway: Router, caller_as: CallerAs, hand: HandWorker) -> None:
    acme = await caller_as("acme")
    async with openai_client(gateway, key="sk-wrong") as client:
        with pytest.raises(AuthenticationError) as refused:
            await client.chat.completions.create(model="echo/say", messages=HELLO)
    assert (refused.value.status_code, body_of(refused.value)["code"]) == (401, "invalid_api_key")
    async with openai_client(gateway, key=acme.headers["authorization"].split()[1]) as client:
        assert [model.id async for model in client.models.list()] == ["echo/say"]


async def test_a_foreign_response_is_an_unknown_one(gateway: Router, caller_as: CallerAs, hand: HandWorker) -> None:
    acme, other = await caller_as("acme"), await caller_as("other")
    hand.submit("t", payer="acme", history="[]")
    hand.run("t", "x")
    assert refusal_of(await other.get("/v1/responses/resp_t"))[:2] == (404, "unknown_task")
    assert refusal_of(await other.get("/v1/responses/resp_t?stream=true"))[:2] == (404, "unknown_task")
    assert refusal_of(await other.post("/v1/responses/resp_t/cancel"))[:2] == (404, "unknown_task")
    going_on = {"model": "echo/say", "input": "x", "previous_response_id": "resp_t"}
    assert refusal_of(await other.post("/v1/responses", json=going_on))[:2] == (404, "unknown_task")
    named = {**CHAT, "skillstream": {"task_id": "t"}}
    assert refusal_of(await other.post("/v1/chat/completions", json=named))[:2] == (409, "task_id_taken")
    assert (await acme.get("/v1/responses/resp_t")).json()["status"] == "completed"


async def test_an_order_that_cannot_be_taken(http: httpx.AsyncClient, hand: HandWorker) -> None:
    changes: list[tuple[dict[str, Any], str | None]] = [
        ({"messages": []}, "messages"), ({"messages": None}, "messages"), ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, None), ({"messages": [{"role": "system", "content": "x"}]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}, *HELLO]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, None), ({"messages": [{"role": "user"}]}, None),
        ({"messages": [{"role": "user", "content": None}]}, None),
        ({"messages": [{"role": "user", "content": [{"type": "input_text", "text": None}]}, *HELLO]}, None),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, None), ({"n": 2}, "n"), ({"model": None}, "model"),
        ({"stream": "perhaps"}, "stream"), ({"skillstream": {"surplus": 1}}, "skillstream.surplus"),
        ({"skillstream": {"task_id": "a b"}}, None), ({"metadata": [1]}, "metadata"), ({"temperature": float("nan")}, None),
    ]  # fmt: skip
    for change, param in changes:
        order = {name: value for name, value in {**CHAT, **change}.items() if value is not None}
        status, code, told = refusal_of(await http.post("/v1/chat/completions", content=json.dumps(order), headers=JSON))
        assert (status, code in ("invalid_request", "invalid_name"), told) == (400, True, param), change
    assert hand.queued() == {}


async def test_bodies_and_paths_that_are_none(start_gateway: StartGateway, hand: HandWorker) -> None:
    gateway = await start_gateway(http_body_bytes=2000)
    assert gateway.http is not None
    async with httpx.AsyncClient(base_url=gateway.http.url, trust_env=False) as http:
        for path in ("/v1/chat/completions", "/v1/responses"):
            assert refusal_of(await http.post(path, content=b"{", headers=JSON))[:2] == (400, "malformed_json")
            assert refusal_of(await http.post(path, content=b"{}", headers=JSON))[:2] == INVALID
            assert refusal_of(await http.post(path, content=b"{}"))[:2] == (415, "unsupported_media_type")
            assert refusal_of(await http.post(path, json={"x": "y" * 2000}))[:2] == (413, "body_too_large")
            assert refusal_of(await http.delete(path))[:2] == (405, "method_not_allowed")
        assert refusal_of(await http.post("/v1/chat/other", json={}))[:2] == (404, "not_found")
        assert error_of(await http.post("/v1/tasks", content=b"{", headers=JSON)) == (400, "malformed_json")
        assert error_of(await http.get("/v1/elsewhere")) == (404, "not_found")


async def test_a_message_that_is_too_large(http: httpx.AsyncClient, hand: HandWorker) -> None:
    large = {**CHAT, "messages": [{"role": "user", "content": "x" * (1024 * 1024 + 1)}]}
    assert refusal_of(await http.post("/v1/chat/completions", json=large))[:2] == (413, "message_too_large")
