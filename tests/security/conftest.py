"""Fixtures: a server of each kind that enforces the ACL files, and settings of each role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import redis

from skillstream_schemas.settings import Settings
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, binaries

from .roles import url_of, write_acl_file

SettingsOf = Callable[..., Settings]
_BEFORE_SETINFO = "+client|setinfo "
"""Redis 7.0 has no such command, and refuses a file that names it."""


@pytest.fixture(scope="session", params=list(binaries()))
def acl_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server with the users of deploy/acl."""
    binary = binaries()[request.param]
    path = tmp_path_factory.mktemp("acl") / "users.acl"
    write_acl_file(path, without="" if _knows_setinfo(binary) else _BEFORE_SETINFO)
    with RedisServer(binary, "--aclfile", str(path)) as server:
        yield server


def _knows_setinfo(binary: str) -> bool:
    with RedisServer(binary) as server, server.client() as client:
        try:
            cast(Any, client).execute_command("ACL", "SETUSER", "trial", "+client|setinfo")
        except redis.ResponseError:
            return False
        return True


@pytest.fixture
def admin(acl_server: RedisServer) -> Iterator[Any]:
    """redis-py as the default user, on an empty server with an empty ACL log."""
    with acl_server.client() as client:
        client.flushall()
        client.acl_log_reset()
        yield client


@pytest.fixture
def settings_of(acl_server: RedisServer, admin: Any) -> SettingsOf:
    """Settings of a part that connects as a role."""

    def make(role: str, **changes: Any) -> Settings:
        return make_settings(url_of(acl_server, role), **changes)

    return make
