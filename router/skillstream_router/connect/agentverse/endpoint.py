"""Where other agents send their envelopes: `POST /submit`, answered as agents of this network answer."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from skillstream.clock import Clock
from skillstream_router.web_server import WebServer, http_url, listen
from skillstream_schemas.connect_errors import EnvelopeRefused
from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable, InvalidSettings

from .envelopes import Opened, open_envelope
from .identity import ChatAgent

_JSON_GROWTH = 8
"""How much larger than its text a message may be in an envelope: escapes, then base64."""
_OTHERS_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Busy:
    """Too much waits to be answered."""


class Endpoint:
    """Responsible for taking envelopes; `take` gets those that are what they say, and returns once the message is kept.

    A body over the limit is answered with 413, an envelope that is refused with 400 and why, and 503 where it cannot be kept
    just now: senders try again or give up, and know.
    """

    def __init__(
        self,
        host: str,
        port: int,
        agents: Mapping[str, ChatAgent],
        take: Callable[[Opened], Awaitable[Busy | None]],
        clock: Clock,
        message_bytes: int,
        routes: tuple[Route, ...] = (),
    ) -> None:
        self.host, self.port = host, port
        self._agents, self._take, self._clock = agents, take, clock
        self._most_bytes = message_bytes * _JSON_GROWTH + _OTHERS_BYTES
        submit = Route("/submit", self._submit, methods=["POST"])
        probe = Route("/submit", self._probe, methods=["GET"])
        app = Starlette(routes=[submit, probe, *routes])
        self._server = WebServer(app)
        self._listener: socket.socket | None = None

    def __repr__(self) -> str:
        return f"<Endpoint {self.url}>"

    @property
    def url(self) -> str:
        """Where it takes envelopes."""
        return f"{http_url(self.host, self.port)}/submit"

    def listen(self) -> None:
        """Takes the address; raises InvalidSettings where that is not possible."""
        try:
            self._listener = listen(self.host, self.port)
        except (OSError, OverflowError) as error:
            raise InvalidSettings(f"--listen {self.host}:{self.port}: {error}") from None
        self.port = self._listener.getsockname()[1]

    async def run(self) -> None:
        """Serves until `stop`."""
        assert self._listener is not None, "it listens first"
        await self._server.serve([self._listener])

    def stop(self) -> None:
        """Has `run` end: no new connections, requests under way are answered."""
        self._server.end()

    async def _probe(self, request: Request) -> Response:
        known = request.headers.get("x-uagents-address") in self._agents
        headers = {"x-uagents-status": "ready" if known else "indeterminate"}
        return JSONResponse({"status": "OK - Agent is running"}, headers=headers)

    async def _submit(self, request: Request) -> Response:
        body = await self._body(request)
        if body is None:
            return _error(413, f"the body has more than {self._most_bytes} bytes")
        try:
            busy = await self._take(open_envelope(body, self._agents, self._clock.now_ms() / 1000))
        except EnvelopeRefused as error:
            return _error(400, error.message)
        except (BrokerUnavailable, BrokerRefused) as error:
            return _error(503, error.code)
        return JSONResponse({}) if busy is None else _error(503, "too many messages wait")

    async def _body(self, request: Request) -> bytes | None:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self._most_bytes:
                return None
        return bytes(body)


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)
