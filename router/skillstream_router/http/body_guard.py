"""Bodies are read from callers who may send them, and bounded in size, type and nesting before anything parses them."""

from __future__ import annotations

import asyncio

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.gateway_errors import BodyTooLarge, GatewayBusy, MalformedJson, RequestTimeout, UnsupportedMedia
from skillstream_schemas.json_text import check_json, check_values

from .authentication import Authenticator
from .failures import answer

_BODY_S = 60.0


class _Hold:
    """What one body has of the bytes of all."""

    def __init__(self, guard: BodyGuard) -> None:
        self._guard = guard
        self._bytes = 0

    def more(self, size_bytes: int) -> int:
        """Takes so many more; returns how many it has now. Raises GatewayBusy."""
        self._bytes += size_bytes
        self._guard.held_bytes += size_bytes
        if self._guard.held_bytes > self._guard.most_bytes:
            raise GatewayBusy(f"bodies of {self._guard.most_bytes} bytes are being read")
        return self._bytes

    def release(self) -> None:
        """Gives them back; twice is safe."""
        self._guard.held_bytes -= self._bytes
        self._bytes = 0


class BodyGuard:
    """Responsible for reading a request's body whole, up to its limit, and refusing what is no JSON object to be parsed.

    Who sends it is told first. All bodies at one time have `most_bytes`, from their first byte until their answer begins.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator, limit_bytes: int, most_bytes: int) -> None:
        self._app = app
        self._authenticator = authenticator
        self._limit_bytes = limit_bytes
        self.most_bytes = most_bytes
        self.held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers by itself where the body is refused."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH", "DELETE"):
            await self._app(scope, receive, send)
            return
        hold = _Hold(self)
        try:
            await self._authenticator.admit(HTTPConnection(scope))
            body = await self._read(scope, receive, hold)
            if body is None:
                return  # it left before it had sent all
        except SkillstreamError as error:
            await answer(error, scope["path"])(scope, receive, send)
            return
        else:
            await self._pass_on(scope, receive, send, body, hold)
        finally:
            hold.release()

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, body: bytes, hold: _Hold) -> None:
        message: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replay() -> Message:
            nonlocal message
            if message is None:
                return await receive()
            given, message = message, None
            return given

        async def begin(message: Message) -> None:
            hold.release()  # an answer may be a stream of hours
            await send(message)

        await self._app(scope, replay, begin)

    async def _read(self, scope: Scope, receive: Receive, hold: _Hold) -> bytes | None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limit_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        more = True
        try:
            async with asyncio.timeout(_BODY_S):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    if hold.more(len(parts[-1])) > self._limit_bytes:
                        raise self._too_large()
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RequestTimeout(f"the body did not come within {_BODY_S:g} s") from None
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
            text = body.decode()
            check_values(text)
            check_json(text)
        except ValueError as error:
            raise MalformedJson(f"body: {error}"[:200]) from None

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body has more than {self._limit_bytes} bytes")
