"""OpenAI's own client, asked to check every answer strictly, against a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from skillstream_router.app import Router
from tests.support.verbs import AGENT, script

MODEL = f"{AGENT}/stream"


def options_of(gateway: Router, key: str) -> dict[str, Any]:
    """How a client is made; it repeats nothing by itself, so that a test sees each answer."""
    assert gateway.http is not None
    return {
        "base_url": f"{gateway.http.url}/v1", "api_key": key, "max_retries": 0, "timeout": 10.0,
        "_strict_response_validation": True,
    }  # fmt: skip


@asynccontextmanager
async def openai_client(gateway: Router, key: str = "none", **changes: Any) -> AsyncIterator[AsyncOpenAI]:
    """The client of asyncio; an open gateway takes any key."""
    options = options_of(gateway, key) | changes
    async with AsyncOpenAI(http_client=DefaultAsyncHttpxClient(trust_env=False), **options) as client:
        yield client


def blocking_client(gateway: Router) -> OpenAI:
    """The client for code without asyncio."""
    return OpenAI(http_client=DefaultHttpxClient(trust_env=False), **options_of(gateway, "none"))


def says(*verbs: list[Any]) -> list[Any]:
    """Messages that have the agent `verbs` do this."""
    return [{"role": "user", "content": script(*verbs)}]


def body_of(error: APIError) -> dict[str, Any]:
    """What the client found under `error`, which must have OpenAI's shape."""
    body: Any = error.body
    assert isinstance(body, dict), body
    assert set(body) == {"message", "type", "param", "code"}, body
    assert body["message"]
    return body
