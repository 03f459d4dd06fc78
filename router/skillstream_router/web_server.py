"""How this package serves HTTP: on an address that it takes itself, with signals left to the process."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

STOP_S = 3
"""Requests under way have so long at a stop."""
_BACKLOG = 2048


class WebServer(uvicorn.Server):
    """Responsible for answering with an ASGI application; `options` are uvicorn's.

    Requests stand in no log: their lines hold what strangers send, and URLs may hold tokens.
    """

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app, lifespan="off", access_log=False, log_config=None, log_level="warning", server_header=False,
                proxy_headers=False, timeout_graceful_shutdown=STOP_S, **options,
            )
        )  # fmt: skip

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the process."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers what comes in at these sockets until `end`; then they are closed."""
        try:
            await super().serve(sockets)
        finally:
            # uvicorn leaves them open where it is stopped while it starts
            for server in getattr(self, "servers", ()):
                server.close()
            for listener in sockets or ():
                listener.close()

    def end(self) -> None:
        """Has `serve` end: no new connections, requests under way are answered."""
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """Takes an address, with port 0 any that is free; from here on connections wait for their answer.

    Raises OSError, OverflowError.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def http_url(host: str, port: int) -> str:
    """The URL of a server at this address."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
