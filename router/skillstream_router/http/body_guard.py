"""Bodies are bounded in size, type and nesting before anything parses them."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.gateway_errors import BodyTooLarge, MalformedJson, UnsupportedMedia
from skillstream_schemas.json_text import check_json

from .failures import answer

_BODY_S = 60.0


class BodyGuard:
    """Responsible for reading a request's body whole, up to its limit, and refusing what is no JSON object to be parsed."""

    def __init__(self, app: ASGIApp, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers by itself where the body is refused."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH", "DELETE"):
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(_BODY_S):
                body = await self._read(scope, receive)
        except TimeoutError:
            late = MalformedJson(f"the body did not come within {_BODY_S:g} s")
            await answer(late, scope["path"])(scope, receive, send)
            return
        except SkillstreamError as error:
            await answer(error, scope["path"])(scope, receive, send)
            return
        if body is None:
            return  # it left before it had sent all
        message: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replay() -> Message:
            nonlocal message
            if message is None:
                return await receive()
            given, message = message, None
            return given

        await self._app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limit_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size_bytes = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size_bytes += len(parts[-1])
            if size_bytes > self._limit_bytes:
                raise self._too_large()
            more = message.get("more_body", False)
        body = b"".join(parts)
        if body:
            self._check(headers.get(b"content-type", b""), body)
        return body

    @staticmethod
    def _check(content_type: bytes, body: bytes) -> None:
        # a page of another origin may send text/plain without asking first, JSON it may not
        if content_type.partition(b";")[0].strip().lower() != b"application/json":
            raise UnsupportedMedia
        try:
            check_json(body.decode())
        except ValueError as error:
            raise MalformedJson(f"body: {error}"[:200]) from None

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body has more than {self._limit_bytes} bytes")
