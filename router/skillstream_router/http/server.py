"""The gateway inside the router's process."""

from __future__ import annotations

import asyncio
import errno
import socket
from functools import partial

from skillstream.clock import Clock
from skillstream_router.store import GatewayStore
from skillstream_router.web_server import WebServer, http_url, listen
from skillstream_schemas.gateway_errors import AddressInUse, OpenGateway
from skillstream_schemas.settings import Settings

from . import stall_watch
from .app import Parts, make_app
from .authentication import Authenticator
from .cors import Cors
from .doors import Doors
from .gateway import Gateway
from .http_protocol import HttpProtocol
from .key_ring import KeyRing
from .read_tokens import TokenSigner
from .socket_protocol import SocketProtocol

_LAST_READ_S = 1.0
"""At a stop, readers have so long to take what was written to them."""
_IDLE_S = 75
"""An idle connection is kept longer than load balancers keep theirs: they must not send into one that closes."""


class HttpServer:
    """Responsible for listening, and for answering until it is stopped.

    Start order: the database, whose keys decide whether it may listen at all; the broker; the socket last. Stop order:
    streams end first, without a final, so that their readers come back to another router; the socket; the connections
    to broker and database once nobody uses them.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        address = settings.http_address
        assert address is not None, "the settings name no address"
        self.host, self.port = address
        self._settings = settings
        self._clock = clock
        self._store = GatewayStore(settings)
        self._keys = KeyRing(self._store, clock)
        self._gateway = Gateway(settings, self._store, clock)
        self._listening = asyncio.Event()
        self._stopping = asyncio.Event()
        self._server: WebServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stalls: stall_watch.StallWatch | None = None
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<HttpServer {self.url} {'serving' if self._serving and not self._serving.done() else 'stopped'}>"

    @property
    def url(self) -> str:
        """Where it answers."""
        return http_url(self.host, self.port)

    async def start(self) -> None:
        """Listens; raises OpenGateway, AddressInUse, DatabaseUnavailable, BrokerUnavailable."""
        await self._store.open()
        doors = Doors(self.host, self._settings.http_cors)
        if not doors.is_loopback and not any(key.revoked_at is None for key in await self._store.keys()):
            raise OpenGateway(f"{self.host} is no loopback address and no API key is in use")
        await self._gateway.open()
        signer = TokenSigner(await self._store.signing_secret())
        listener = _listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        authenticator = Authenticator(self._keys, signer, self._clock, doors)
        app = make_app(Parts(self._gateway, authenticator, self._stopping))
        cors = Cors(app, self._settings.http_cors) if self._settings.http_cors else None
        self._server = WebServer(
            cors or app, http=partial(HttpProtocol, cors=cors), ws=SocketProtocol,
            limit_concurrency=self._settings.http_connections, ws_max_size=self._settings.http_body_bytes,
            ws_per_message_deflate=False, timeout_keep_alive=_IDLE_S,
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        self._stalls = stall_watch.StallWatch(self._server.server_state.connections, self._clock, stall_watch.STALL_S)
        self._watching = loop.create_task(self._stalls.run(), name="skillstream-http-stalls")
        self._serving = loop.create_task(self._server.serve([listener]), name="skillstream-http")
        self._listening.set()

    async def until_serving(self) -> None:
        """Waits until requests are answered."""
        await self._listening.wait()

    async def run(self) -> None:
        """Serves until it is stopped."""
        assert self._serving is not None, "it was not started"
        await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """Stops in order; twice is safe, and also where the start failed half way."""
        self._stopping.set()
        if self._server is not None and self._serving is not None:
            self._server.end()
            await asyncio.wait([self._serving], timeout=_LAST_READ_S)
            if self._stalls is not None:
                self._stalls.end_all()  # their readers come back with their cursors
            await asyncio.wait([self._serving])
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._gateway.close()
        await self._store.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except (OSError, OverflowError) as error:
        why = "in use" if isinstance(error, OSError) and error.errno == errno.EADDRINUSE else str(error)
        raise AddressInUse(f"{host}:{port}: {why}") from None
