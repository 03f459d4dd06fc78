"""Where the gateway listens, and which web pages may come in where nobody needs a key."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection


class Doors:
    """Responsible for keeping web pages out of an open gateway: any page that a person visits can reach loopback.

    A page that makes its own name point here (DNS rebinding) shows in `Host`, one that opens a WebSocket in `Origin`, one that
    names us as an image or follows a link in `Sec-Fetch-Site` (W3C Fetch Metadata) alone.
    """

    def __init__(self, host: str, cors: Sequence[str]) -> None:
        self.is_loopback = is_loopback(host)
        self._cors = frozenset(cors)

    def lets_in(self, connection: HTTPConnection) -> bool:
        """True if the request names this machine, and comes from no page, a page of this machine, or one that is let in."""
        origin = connection.headers.get("origin")
        try:
            named = urlsplit(f"//{connection.headers.get('host', '')}").hostname
            page = None if origin is None else urlsplit(origin).hostname
        except ValueError:
            return False
        if not is_loopback(named or ""):
            return False
        if origin is None:
            return connection.headers.get("sec-fetch-site") != "cross-site"
        return origin in self._cors or is_loopback(page or "")


def is_loopback(host: str) -> bool:
    """True for a name or address of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
