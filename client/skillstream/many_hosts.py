"""URLs that name several hosts: `scheme://[user:password@]host:port,host:port[/path][?query]`.

User and password are those of the servers behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class ManyHosts:
    """The parts of such a URL; `path` is what stands behind the first slash."""

    hosts: tuple[tuple[str, int], ...]
    path: str
    user: str = field(repr=False)
    password: str = field(repr=False)
    secure: bool
    query: str = ""

    @classmethod
    def parse(cls, url: str, scheme: str, port: int) -> Self:
        """Reads a URL that begins with `scheme`; `port` is that of hosts without one. Raises ValueError."""
        login, at, place = url.removeprefix(scheme).rpartition("@")
        user, _, password = login.partition(":") if at else ("", "", "")
        place, _, query = place.partition("?")
        hosts, _, path = place.partition("/")
        found = tuple(_host(host, port) for host in hosts.split(","))
        return cls(found, path, unquote(user), unquote(password), scheme.startswith("rediss"), query)

    def server_url(self, host: str, port: int, db: int = 0) -> str:
        """URL of one server, with the same user, password and query."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user or self.password else ""
        query = f"?{self.query}" if self.query else ""
        name = f"[{host}]" if ":" in host and not host.startswith("[") else host  # IPv6
        return f"{'rediss' if self.secure else 'redis'}://{login}{name}:{port}/{db}{query}"


def _host(text: str, default: int) -> tuple[str, int]:
    host, _, port = text.rpartition(":") if ":" in text else (text, "", str(default))
    if not host:
        raise ValueError(text)
    return host, int(port)
