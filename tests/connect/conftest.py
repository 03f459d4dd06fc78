"""Fixtures of the connectors' tests: an agent driven by verbs on a worker in this process, a hub, a connector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

import pytest
import redis
from uagents_core.identity import Identity

from skillstream_router.connect.agentverse import ChatAddress, ChatBridge
from skillstream_router.connect.agentverse.identity import seed_of
from skillstream_router.connect.agentverse.post import ChatPace
from skillstream_router.connect.hub import HubConnector
from skillstream_router.connect.hub.link import HubPace
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker
from tests.support.redis_server import RedisServer, binaries, free_port
from tests.support.verbs import Gates, verb_agent

from .chat_peer import ChatPeer
from .stub_hub import StubHub

QUICK = HubPace(
    answer_s=2, heartbeat_s=30, silence_s=60, again_s=0.1, longest_again_s=0.3, reconnect_s=0.02, longest_reconnect_s=0.1
)
QUICK_CHAT = ChatPace(request_s=5, patience_s=5, first_pause_s=0.02, longest_pause_s=0.1, acknowledgement_s=2, flush_s=0.1)
UNHURRIED_CHAT = replace(QUICK_CHAT, flush_s=60)
"""Whatever the machine does meanwhile, no piece goes before its sentence has ended."""
SEED = "the secret seed of the bridge in tests"


class StartConnector(Protocol):
    """Runs a connector to a hub for as long as the context lasts."""

    def __call__(self, hub: StubHub, *agents: str, **options: Any) -> Any: ...


class StartBridge(Protocol):
    """Runs a bridge for as long as the context lasts."""

    def __call__(self, *agents: str, peers: dict[str, str] | None = None, **options: Any) -> Any: ...


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """One kind of server: what connectors ask of it beside what clients ask, tested on each kind elsewhere, is plain."""
    with RedisServer(next(iter(binaries().values()))) as server:
        yield server.url


@pytest.fixture
def gates() -> Gates:
    """Where the test and its skills meet."""
    return Gates()


@pytest.fixture
def agent(gates: Gates) -> Agent:
    """The agent `verbs`."""
    return verb_agent(gates)


@pytest.fixture
async def worker(settings: Settings, agent: Agent) -> AsyncIterator[Worker]:
    """A running worker of the agent `verbs`."""
    worker = Worker([agent], settings, name="w1")
    await worker.start()
    yield worker
    await worker.stop(grace_s=0)


@pytest.fixture
def connected(settings: Settings, worker: Worker) -> StartConnector:
    """Runs a connector that offers the agent `verbs`."""

    @asynccontextmanager
    async def start(hub: StubHub, *agents: str, **options: Any) -> AsyncIterator[HubConnector]:
        options = {"pace": QUICK, **options}
        async with HubConnector(hub.address, agents or ("verbs/stream",), settings, **options) as connector:
            yield connector

    return start


@pytest.fixture(scope="session")
def chat_port() -> int:
    """The port of the bridge under test: the peer has to know it from its start."""
    return free_port()


@pytest.fixture(scope="session")
def peer(chat_port: int) -> Iterator[ChatPeer]:
    """A real uAgents agent that knows the bridge's agents `verbs` and `echo`."""
    url = f"http://127.0.0.1:{chat_port}/submit"
    known = {str(Identity.from_seed(seed_of(SEED, name), 0).address): url for name in ("verbs", "echo")}
    started = ChatPeer("the seed of the peer in tests", known)
    try:
        started.wait_ready()
        yield started
    finally:
        started.stop()


@pytest.fixture
def bridged(settings: Settings, worker: Worker, peer: ChatPeer, chat_port: int) -> StartBridge:
    """Runs a bridge that offers the agent `verbs` and knows the peer."""

    @asynccontextmanager
    async def start(*agents: str, peers: dict[str, str] | None = None, **options: Any) -> AsyncIterator[ChatBridge]:
        address = ChatAddress(SEED, port=chat_port, peers={peer.address: peer.url} if peers is None else peers)
        options = {"pace": QUICK_CHAT, **options}
        async with ChatBridge(address, agents or ("verbs/stream",), settings, **options) as bridge:
            yield bridge

    return start


def open_deliveries(outside: redis.Redis) -> list[str]:
    """Keys of what is owed."""
    return list(outside.scan_iter("skillstream:connect:*:open"))
