"""Agents of the Agent Chat Protocol as skills: asked through the bridge (`skillstream connect agentverse`)."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from hashlib import sha256
from typing import Any
from uuid import UUID

from skillstream_schemas.connect_errors import PeerRefused, PeerUnavailable
from skillstream_schemas.errors import InvalidSettings, MissingExtra

from .context import TaskContext
from .response import Response
from .skill import StreamingFunction

_CONNECT_S = 10.0
_SILENCE_S = 30.0
"""The bridge says each 10 s that it is alive."""
Line = dict[str, Any]


def chat_skill(
    address: str,
    *,
    speaker: str | None = None,
    bridge_url: str | None = None,
    quiet_s: float = 1.0,
    timeout_s: float = 120.0,
) -> StreamingFunction:
    """A skill that passes its message to the chat agent at `address` and streams what that says.

    Register it as any other, with `retry_on=(PeerUnavailable,)` for another try: an attempt that asks again is given the answer
    to the first message for a minute, without a second one. Tasks of one context are one session there. `speaker` is the agent
    of the bridge that asks, by default the skill's own; `bridge_url` such as `http://127.0.0.1:8001`, by default
    SKILLSTREAM_CHAT_BRIDGE; the key is SKILLSTREAM_CHAT_KEY. An answer is over with its stream or session, or `quiet_s` after a
    message; `timeout_s` bounds it. The skill raises PeerUnavailable, PeerRefused, InvalidSettings, MissingExtra.
    """

    async def ask(message: str, context: TaskContext) -> AsyncGenerator[str | Response | dict[str, Any], None]:
        url, key = bridge_url or os.environ.get("SKILLSTREAM_CHAT_BRIDGE", ""), os.environ.get("SKILLSTREAM_CHAT_KEY", "")
        if not url or not key:
            raise InvalidSettings("set SKILLSTREAM_CHAT_BRIDGE and SKILLSTREAM_CHAT_KEY to ask chat agents")
        asked = {
            "speaker": speaker or context.agent, "to": address, "text": message, "quiet_s": quiet_s, "timeout_s": timeout_s,
            "session": str(_uuid("session", address, context.agent, context.context_id or context.task_id)),
            "msg_id": str(_uuid("message", address, context.task_id)),
        }  # fmt: skip
        async for line in _lines(f"{url.rstrip('/')}/ask", key, asked):
            match line:
                case {"text": str() as text}:
                    yield text
                case {"resource": list() as resources}:
                    yield {"resource": [{"uri": each["uri"], **each["metadata"]} for each in resources]}
                case {"metadata": dict() as metadata}:
                    yield Response(text=str(metadata.get("status", "")), status="working", metadata=metadata)
                case {"error": {"code": code, "message": why}}:
                    raise (PeerRefused if code == PeerRefused.code else PeerUnavailable)(f"{address}: {why}")

    return ask


async def _lines(url: str, key: str, asked: Line) -> AsyncIterator[Line]:
    """The lines of the bridge's answer up to its end; raises PeerUnavailable where they break off."""
    httpx = _httpx()
    timeout = httpx.Timeout(_CONNECT_S, read=_SILENCE_S)
    try:
        async with (
            httpx.AsyncClient(timeout=timeout) as http,
            http.stream("POST", url, json=asked, headers={"authorization": f"Bearer {key}"}) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                await answer.aread()
                raise PeerRefused(f"the bridge answers HTTP {answer.status_code}: {answer.text[:300]}")
            async for text in answer.aiter_lines():
                line = json.loads(text) if text else {}
                yield line
                if "end" in line or "error" in line:
                    return
    except (httpx.HTTPError, ValueError) as error:
        raise PeerUnavailable(f"the bridge at {url}: {type(error).__name__}") from None
    raise PeerUnavailable("the bridge's answer broke off")


def _httpx() -> Any:
    try:
        import httpx
    except ModuleNotFoundError:
        raise MissingExtra("asking chat agents needs httpx", extra="uagents") from None
    return httpx


def _uuid(*parts: str) -> UUID:
    """A UUID that stands for these parts, stamped as version 4: the chat protocol takes no other."""
    return UUID(bytes=sha256("|".join(parts).encode()).digest()[:16], version=4)
