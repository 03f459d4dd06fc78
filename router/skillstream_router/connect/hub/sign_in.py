"""Where the hub is, and the short-lived token with which an agent registers there."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import httpx

from skillstream_schemas.connect_errors import HubRefused, HubUnavailable
from skillstream_schemas.errors import InvalidSettings

_TIMEOUT_S = 15.0
REFUSED = (401, 403)
"""HTTP statuses with which a hub lets nobody in, however often he comes."""
_SOCKET_SCHEMES = {"ws": "http", "wss": "https"}


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A hub: `url` of its WebSocket, `api_url` of its HTTP interface (by default on the same host), `key` of the account."""

    url: str
    key: str = field(repr=False)
    api_url: str = ""

    def __post_init__(self) -> None:
        """Raises InvalidSettings for a URL that is none of a WebSocket, or no key."""
        parts = urlsplit(self.url)
        if parts.scheme not in _SOCKET_SCHEMES or not parts.hostname or parts.username:
            raise InvalidSettings("the hub's URL is ws://HOST[:PORT]/PATH or wss://…, without user and password")
        if not self.key:
            raise InvalidSettings("no key for the hub: set SKILLSTREAM_HUB_KEY, or name a file with --key-file")
        if not self.api_url:
            object.__setattr__(self, "api_url", f"{_SOCKET_SCHEMES[parts.scheme]}://{parts.netloc}")

    def link(self, agent: str) -> str:
        """The name under which what this agent owes to this hub is kept."""
        parts = urlsplit(self.url)
        return f"hub-{sha256(f'{parts.netloc}{parts.path}|{agent}'.encode()).hexdigest()[:24]}"


async def fetch_token(http: httpx.AsyncClient, address: HubAddress) -> str:
    """Exchanges the key for a token; raises HubRefused for a key that is not accepted, HubUnavailable otherwise."""
    try:
        answer = await http.post(f"{address.api_url}/auth/agent-token", json={"api_key": address.key}, timeout=_TIMEOUT_S)
        if answer.status_code in REFUSED:
            raise HubRefused(f"the key is not accepted (HTTP {answer.status_code})")
        answer.raise_for_status()
        body: Any = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise HubUnavailable(f"no token: {type(error).__name__}") from None  # the text of an error may hold what was sent
    token = body.get("token") if isinstance(body, dict) else None
    if not isinstance(token, str) or not token:
        raise HubUnavailable("no token in the answer")
    return token
