"""URLs that name a Sentinel trio instead of a server: `redis+sentinel://[user:password@]host:port,host:port/service[/db][?ssl_…]`.

User and password are those of the server; Sentinels are asked without. `rediss+sentinel://` secures both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast
from urllib.parse import parse_qsl

import redis.exceptions
from redis.asyncio.sentinel import Sentinel

from skillstream_schemas.errors import BrokerUnavailable, InvalidSettings
from skillstream_schemas.settings import without_secret

from .many_hosts import ManyHosts

_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
_PORT = 26379
_NO = ("0", "f", "false", "n", "no", "")


def checks_hostname(query: Mapping[str, str]) -> bool:
    """What the parameters of a URL say of the name in a server's certificate; unless they say no, it has to be right."""
    return query.get("ssl_check_hostname", "true").lower() not in _NO


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """Where to ask for the primary of a service: the hosts of `sentinels`, whose user and password are the servers'."""

    sentinels: ManyHosts
    service: str
    db: int

    @classmethod
    def parse(cls, url: str) -> Self | None:
        """Reads a Sentinel URL, None for a URL of another scheme; raises InvalidSettings for one that cannot be read."""
        scheme = next((scheme for scheme in _SCHEMES if url.startswith(scheme)), None)
        if scheme is None:
            return None
        try:
            read = ManyHosts.parse(url, scheme, _PORT)
            service, _, db = read.path.partition("/")
            if not service:
                raise ValueError
            return cls(read, service, int(db or 0))
        except ValueError:
            form = f"{scheme}host:port,host:port/service or …/service/db"
            raise InvalidSettings(f"redis_url {without_secret(url)}: is not of the form {form}") from None

    def server_url(self, host: str, port: int) -> str:
        """URL of a server of this service."""
        return self.sentinels.server_url(host, port, self.db)

    async def primary_url(self, timeout_s: float) -> str:
        """URL of the primary as the Sentinels see it now; raises BrokerUnavailable where none of them knows one."""
        hosts, secure = self.sentinels.hosts, self.sentinels.secure
        options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "ssl": secure}
        if secure:
            secured = {name: value for name, value in parse_qsl(self.sentinels.query) if name.startswith("ssl_")}
            options |= {**secured, "ssl_check_hostname": checks_hostname(secured)}
        try:
            sentinel = cast(Any, Sentinel)(list(hosts), sentinel_kwargs=options)
        except (TypeError, ValueError):
            raise InvalidSettings(f"redis_url: redis-py does not know one of the query parameters {sorted(options)}") from None
        try:
            host, port = await sentinel.discover_master(self.service)
        except (redis.exceptions.RedisError, OSError, TimeoutError) as error:
            raise BrokerUnavailable(f"no Sentinel of {hosts} knows a primary of {self.service!r}: {error}") from None
        finally:
            await asyncio.gather(*(client.aclose() for client in sentinel.sentinels), return_exceptions=True)
        return self.server_url(host, port)
