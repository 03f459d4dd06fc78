"""From what a request carries to who sent it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from skillstream.clock import Clock
from skillstream_schemas.gateway_errors import ForeignHost, Unauthorized

from .caller import Caller
from .doors import Doors
from .key_ring import KeyRing
from .read_tokens import ReadToken, TokenSigner

_KNOWN = "skillstream.caller"


class Authenticator:
    """Responsible for telling callers apart: by API key, by read token, or not at all on an open gateway.

    A gateway is open where it listens on loopback and no key was ever made.
    """

    def __init__(self, keys: KeyRing, signer: TokenSigner, clock: Clock, doors: Doors) -> None:
        self._keys = keys
        self._signer = signer
        self._clock = clock
        self._doors = doors

    async def caller(self, connection: HTTPConnection) -> Caller:
        """Who sent this request; raises Unauthorized, ForeignHost, DatabaseUnavailable."""
        known: Caller | None = connection.scope.get(_KNOWN)
        return known or await self._tell(connection)

    async def admit(self, connection: HTTPConnection) -> None:
        """Tells the caller before the body of the request is read; raises what `caller` does.

        A read token is none here: it lets nothing be sent.
        """
        connection.scope[_KNOWN] = await self._tell(connection)

    async def _tell(self, connection: HTTPConnection) -> Caller:
        text = _credential(connection)
        if text is not None:
            if text.startswith("sk-") and (key := await self._keys.find(text)) is not None:
                return Caller(key.payer, key.id)
            if text.startswith("rt-"):
                return await self._token_bearer(text, connection.path_params.get("task_id", ""))
        # on an open gateway any other word is let in as none would be: OpenAI's clients do not go without a key
        if self._doors.is_loopback and await self._keys.is_empty():
            if not self._doors.lets_in(connection):
                raise ForeignHost
            return Caller(None)
        raise Unauthorized

    def token(self, caller: Caller, task_id: str, submitted_at: int, ttl_s: int) -> tuple[str, int]:
        """A read token for a task that the caller may see, and unix ms until which it is good.

        `submitted_at` is when the task was submitted (unix ms).
        """
        expires_at = self._clock.now_ms() + ttl_s * 1000
        return self._signer.sign(task_id, ReadToken(caller.key_id, expires_at, submitted_at)), expires_at

    async def _token_bearer(self, text: str, task_id: str) -> Caller:
        token = self._signer.read(task_id, text, self._clock.now_ms()) if task_id else None
        if token is None:
            raise Unauthorized
        if token.key_id and await self._keys.in_use(token.key_id) is None:
            raise Unauthorized
        if not token.key_id and not await self._keys.is_empty():
            raise Unauthorized  # given away while the gateway was open
        return Caller(None, token.key_id, task_id, token.submitted_at)


async def _authenticated(connection: HTTPConnection) -> Caller:
    authenticator: Authenticator = connection.app.state.authenticator
    return await authenticator.caller(connection)


CallerOf = Annotated[Caller, Depends(_authenticated)]
"""A parameter of an endpoint: who calls it."""


def _credential(connection: HTTPConnection) -> str | None:
    scheme, _, text = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text:
        return text.strip()
    # a browser's EventSource and WebSocket cannot set headers; a key never belongs into a URL, which logs keep
    token = connection.query_params.get("token")
    return connection.headers.get("x-api-key") or (token if token is not None and token.startswith("rt-") else None)
