"""Fixtures of all tests: a real server for each kind found here, emptied before each test, checked after it."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from skillstream import Client
from skillstream_schemas.settings import Settings

from .support.leaks import check_no_leaks
from .support.redis_server import RedisServer, binaries

_PARAMS = [*binaries(), "fake"]
_ANY_MACHINE: dict[str, Any] = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
"""A machine that is busy takes long over an example, and that is no fault of what is tested."""
hypothesis_settings.register_profile("gate", **_ANY_MACHINE, derandomize=True, database=None)
hypothesis_settings.register_profile("explore", **_ANY_MACHINE)
hypothesis_settings.load_profile("gate")  # the same examples each time; `--hypothesis-profile=explore` looks for others


@pytest.fixture(scope="session", params=_PARAMS)
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a server of the kind that the test runs on."""
    if request.param == "fake":
        yield from _fake_server()
        return
    with RedisServer(binaries()[request.param]) as server:
        yield server.url


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests run on fakeredis only where they are marked as behaving alike there."""
    items[:] = [item for item in items if not _is_fake(item) or item.get_closest_marker("fake") is not None]


def _is_fake(item: pytest.Item) -> bool:
    spec = getattr(item, "callspec", None)
    return spec is not None and spec.params.get("server_url") == "fake"


def _fake_server() -> Iterator[str]:
    import fakeredis

    server = fakeredis.TcpFakeServer(("127.0.0.1", 0), server_type="redis")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"redis://127.0.0.1:{server.server_address[1]}/0"
    server.shutdown()
    server.server_close()


@pytest.fixture
def outside(server_url: str) -> Iterator[redis.Redis]:
    """A redis-py client on an empty server: what an operator would see. Checks for leaks after the test."""
    client: redis.Redis = redis.Redis.from_url(server_url, decode_responses=True, protocol=2)
    client.flushall()
    yield client
    try:
        check_no_leaks(client)
    finally:
        client.close()


@pytest.fixture
def settings(server_url: str, outside: redis.Redis) -> Settings:
    """Settings of all parts in a test: short lease, short patience."""
    return make_settings(server_url)


def make_settings(url: str, **changes: Any) -> Settings:
    """Settings with bounds that suit tests."""
    values: dict[str, Any] = {"redis_url": url, "lease_s": 2, "grace_s": 2, "poll_s": 0.2, "patience_s": 3, "shards": 4}
    return Settings(**(values | changes))


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    """An open client."""
    async with Client(settings=settings) as opened:
        yield opened


@pytest.fixture(scope="session", autouse=True)
def _no_environment() -> None:
    """Settings of the machine's user do not reach the tests."""
    for name in [name for name in os.environ if name.startswith("SKILLSTREAM_")]:
        del os.environ[name]
