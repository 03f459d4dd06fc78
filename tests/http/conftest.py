"""Fixtures of the gateway's tests: a router that answers HTTP, callers with keys, a worker, streams written by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import redis

from skillstream_router.app import Router
from skillstream_router.store import GatewayStore
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from tests.client.hand_worker import HandWorker
from tests.router.conftest import QUIET
from tests.router.ledger_file import LedgerFile
from tests.support.redis_server import RedisServer, valkey_binary
from tests.support.verbs import Gates, verb_agent

StartGateway = Callable[..., Awaitable[Router]]
CallerAs = Callable[[str], Awaitable[httpx.AsyncClient]]
PATIENCE_S = 10.0


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """One kind of server: what differs between them, HTTP does not see."""
    with RedisServer(valkey_binary()) as server:
        yield server.url


@pytest.fixture
def ledger_file(tmp_path: Path) -> LedgerFile:
    """The database file of the router under test."""
    return LedgerFile(tmp_path / "router.db")


@pytest.fixture
def http_settings(settings: Settings, ledger_file: LedgerFile) -> Settings:
    """Settings of a router that answers HTTP on a free port of this machine."""
    return settings.changed(database_url=ledger_file.url, http="127.0.0.1:0")


@pytest.fixture
async def start_gateway(http_settings: Settings) -> AsyncIterator[StartGateway]:
    """Starts routers with a gateway and stops them."""
    async with AsyncExitStack() as stack:

        async def start(**changes: object) -> Router:
            return await stack.enter_async_context(Router(http_settings.changed(**changes), pace=QUIET))

        yield start


@pytest.fixture
async def gateway(start_gateway: StartGateway) -> Router:
    """A router with an open gateway."""
    return await start_gateway()


@pytest.fixture
async def http(gateway: Router) -> AsyncIterator[httpx.AsyncClient]:
    """A caller without a key."""
    async with caller(gateway) as opened:
        yield opened


@pytest.fixture
async def caller_as(gateway: Router, http_settings: Settings) -> AsyncIterator[CallerAs]:
    """Makes callers with a key, bound to a payer; from the first on, the gateway is closed to others."""
    async with AsyncExitStack() as stack:

        async def make(payer: str) -> httpx.AsyncClient:
            return await stack.enter_async_context(caller(gateway, await make_key(http_settings, payer)))

        yield make


@pytest.fixture
def hand(outside: redis.Redis, http_settings: Settings) -> Iterator[HandWorker]:
    """A worker played by hand, announced; ends all jobs at last."""
    worker = HandWorker(outside, http_settings)
    worker.announce()
    yield worker
    worker.settle_all()


@pytest.fixture
def gates() -> Gates:
    """Where the test and its skills meet."""
    return Gates()


@pytest.fixture
async def worker(settings: Settings, gates: Gates) -> AsyncIterator[Worker]:
    """A running worker of the agent `verbs`."""
    agent: Agent = verb_agent(gates)
    async with Worker([agent], settings, name="w1") as running:
        yield running


def caller(router: Router, key: str | None = None) -> httpx.AsyncClient:
    """A client of a router's gateway."""
    assert router.http is not None
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=router.http.url, headers=headers, timeout=PATIENCE_S, trust_env=False)


async def make_key(settings: Settings, payer: str) -> str:
    """A new API key, as `keys create` makes it."""
    async with GatewayStore(settings) as store:
        _, key = await store.create_key(payer, "", 1)
    return key
