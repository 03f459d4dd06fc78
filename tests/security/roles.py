"""The ACL files in deploy/acl as a server reads them, and what a server says of its users."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.support.monitor import Monitor
from tests.support.redis_server import RedisServer

ACL_FOLDER = Path(__file__).parents[2] / "deploy" / "acl"
ROLES = ("submitter", "worker", "router", "follower", "connector")
_PLACEHOLDER = "SHA256_OF_PASSWORD"
_CONTAINERS = {"CLIENT", "SCRIPT", "XGROUP", "XINFO"}


def password_of(role: str) -> str:
    """The password that tests give a role: with what a URL needs escapes for."""
    return f"{role}/p@ss:word?#%"


def rules_of(role: str) -> str:
    """The line of a role, its placeholder filled in."""
    text = (ACL_FOLDER / f"{role}.acl").read_text()
    assert text.count(_PLACEHOLDER) == 1
    return text.replace(_PLACEHOLDER, sha256(password_of(role).encode()).hexdigest())


def granted(role: str) -> set[str]:
    """Names of the commands that a role may use, in capitals: `XGROUP|CREATE`."""
    return {name.upper() for name in re.findall(r"\+([a-z|_]+)", rules_of(role))}


def write_acl_file(path: Path, *, without: str = "") -> Path:
    """An ACL file with all roles, and the default user for the test itself."""
    roles = "".join(rules_of(role).replace(without, "") if without else rules_of(role) for role in ROLES)
    path.write_text("user default on nopass ~* &* +@all\n" + roles)
    return path


def url_of(server: RedisServer, role: str) -> str:
    """The broker's URL with the user of a role."""
    escaped = "".join(letter if letter.isalnum() else f"%{ord(letter):02X}" for letter in password_of(role))
    return f"redis://{role}:{escaped}@127.0.0.1:{server.port}/0"


class UsedCommands:
    """Responsible for telling which user sent which commands between entering and `by_role`."""

    def __init__(self, outside: redis.Redis) -> None:
        self._outside: Any = outside
        self._monitor = Monitor(outside)
        self._users: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._monitor.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._monitor.__exit__(kind, error, trace)

    def note_users(self) -> None:
        """Looks who is connected: to be called while all parts are."""
        self._users |= {client["addr"]: client["user"] for client in self._outside.client_list()}

    def by_role(self) -> dict[str, set[str]]:
        """Commands of each user; those that a script ran are its caller's."""
        used: dict[str, set[str]] = {}
        caller = ""
        for command in self._monitor.executed():
            if command.source != "lua":
                caller = self._users.get(command.source, "")
            sub = f"|{command.arguments[0].upper()}" if command.name in _CONTAINERS else ""
            used.setdefault(caller, set()).add(command.name + sub)
        return used
