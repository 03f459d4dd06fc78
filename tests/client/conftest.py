"""Fixtures of the client's tests: a worker played by hand, a broker seam, a server that may be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import redis

from skillstream.broker import Broker
from skillstream_schemas.settings import Settings
from tests.support.redis_server import RedisServer, valkey_binary

from .busy import OPTIONS as BUSY_OPTIONS
from .hand_worker import HandWorker


@pytest.fixture
def hand(outside: redis.Redis, settings: Settings) -> Iterator[HandWorker]:
    """A worker played by hand, announced; ends all jobs at last."""
    worker = HandWorker(outside, settings)
    worker.announce()
    yield worker
    worker.settle_all()


@pytest.fixture
async def broker(settings: Settings) -> AsyncIterator[Broker]:
    """The client's seam to Redis."""
    opened = await Broker(settings).open()
    yield opened
    await opened.close()


@pytest.fixture
def busy_server() -> Iterator[RedisServer]:
    """A server of this test alone, that `keep_busy` makes refuse others."""
    with RedisServer(valkey_binary(), *BUSY_OPTIONS) as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server of this test alone, that may be paused and killed."""
    with RedisServer(valkey_binary()) as server:
        yield server
