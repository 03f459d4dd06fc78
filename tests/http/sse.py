"""Reading server-sent events in tests, with httpx-sse, which knows nothing of our server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from httpx_sse import EventSource, aconnect_sse


@asynccontextmanager
async def follow(
    http: httpx.AsyncClient, task_id: str, *, cursor: str | None = None, **options: Any
) -> AsyncIterator[EventSource]:
    """A follower; `cursor` is sent as browsers do, `options` are the query."""
    headers = {} if cursor is None else {"last-event-id": cursor}
    async with aconnect_sse(http, "GET", f"/v1/tasks/{task_id}/events", params=options, headers=headers) as source:
        yield source


async def read_all(http: httpx.AsyncClient, task_id: str, *, cursor: str | None = None, **options: Any) -> list[dict[str, Any]]:
    """All events behind a cursor, to the end of the answer."""
    async with follow(http, task_id, cursor=cursor, **options) as source:
        return [json.loads(event.data) async for event in source.aiter_sse()]


def error_of(response: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, which must have our shape."""
    body = response.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"code", "message"}, body
    assert body["error"]["message"]
    return response.status_code, body["error"]["code"]
