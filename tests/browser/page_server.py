"""Serves a page whose origin is not the gateway's."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

HOST = "app.example"
"""What Chromium calls this machine, so that the page is of another site than the gateway too."""


class PageServer:
    """Responsible for answering `/` with an empty page that has one script, on a free port."""

    def __init__(self, script: str = "") -> None:
        self.script = script
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    @property
    def origin(self) -> str:
        """The origin of the page, as browsers send it."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/"
                body = f'<!doctype html><meta charset="utf-8"><script>{page.script}</script>'.encode() if found else b""
                self.send_response(200 if found else 404)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        return Handler
