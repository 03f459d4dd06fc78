"""Where other agents are: endpoints given by the operator, else those that the almanac knows."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from skillstream_schemas.connect_errors import PeerUnavailable

from .library import AlmanacResolver
from .registration import agentverse_config

_FRESH_S = 60.0
_MOST = 10_000


class Peers:
    """Responsible for the endpoint of each address.

    What the almanac says may be anything that somebody registered: an endpoint of this machine or of a private network is
    not called, unless the operator names it.
    """

    def __init__(self, named: Mapping[str, str], agentverse: str) -> None:
        self._named = dict(named)
        self._almanac = AlmanacResolver(max_endpoints=1, agentverse_config=agentverse_config(agentverse))
        self._found: dict[str, tuple[str, float]] = {}

    def __repr__(self) -> str:
        return f"<Peers named={len(self._named)} found={len(self._found)}>"

    async def endpoint(self, address: str) -> str:
        """The URL that takes envelopes for this address; raises PeerUnavailable."""
        if (named := self._named.get(address)) is not None:
            return named
        url, until_s = self._found.get(address, ("", 0.0))
        if until_s > time.monotonic():
            return url
        endpoints: list[str]
        _, endpoints = await self._almanac.resolve(address)
        if not endpoints:
            raise PeerUnavailable(f"no endpoint of {address} is known")
        if not _is_public(endpoints[0]):
            raise PeerUnavailable(f"the endpoint of {address} is not public: name it with --peer")
        if len(self._found) >= _MOST:
            self._found.clear()
        self._found[address] = endpoints[0], time.monotonic() + _FRESH_S
        return endpoints[0]

    def forget(self, address: str) -> None:
        """Has the next look-up ask again."""
        self._found.pop(address, None)


def _is_public(url: str) -> bool:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if parts.scheme not in ("http", "https") or not host or host == "localhost" or host.endswith(".localhost"):
        return False
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:
        return True
