"""Which pages of other origins may read the gateway's answers, whoever gives them."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

RawHeaders = list[tuple[bytes, bytes]]


class Cors(CORSMiddleware):
    """Responsible for the headers that browsers ask for; it stands around the whole application: faults have them too."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=list(origins),
            allow_methods=["POST", "GET"],
            allow_headers=["*"],  # OpenAI's client for JavaScript sends a dozen of its own, more with each release
            expose_headers=["location", "retry-after", "x-should-retry", "x-task-id"],
        )

    def headers_for(self, origin: str) -> RawHeaders:
        """What an answer carries that is given before there is a request for the application."""
        if not self.is_allowed_origin(origin):
            return []
        headers = MutableHeaders(self.simple_headers)
        if not self.allow_all_origins:
            self.allow_explicit_origin(headers, origin)
        return headers.raw
