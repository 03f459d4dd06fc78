"""A cluster that enforces the rights of deploy/README.md, and one behind TLS."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from skillstream import Client
from skillstream_router import Router
from skillstream_router.connect.hub import HubConnector
from skillstream_schemas.errors import BrokerUnavailable
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.client.bounds import soon, until
from tests.conftest import make_settings
from tests.connect.stub_hub import StubHub, text_of
from tests.security.roles import ROLES, password_of, rules_of
from tests.support.certificates import OPENSSL, Certificate
from tests.support.tls_front import TlsFront
from tests.support.verbs import AGENT, Gates, script, verb_agent
from tests.topologies.cluster import Node, ValkeyCluster
from tests.topologies.trio import until as until_outside

PAGE = Path(__file__).parents[2] / "deploy" / "README.md"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def guarded(cluster: ValkeyCluster) -> Iterator[ValkeyCluster]:
    """The cluster with a user for each role, and what the page adds for clusters."""
    added = {role: re.findall(rf"^{role}: (.*)$", PAGE.read_text(), re.MULTILINE) for role in ROLES}
    for node in cluster.nodes:
        for role in ROLES:
            (more,) = added[role]
            rules = re.findall(r"\([^)]*\)|\S+", rules_of(role).removeprefix(f"user {role} ") + " " + more)
            node.ask("ACL", "SETUSER", role, *rules)
        node.ask("ACL", "LOG", "RESET")
    yield cluster
    for node in cluster.nodes:
        node.ask("ACL", "DELUSER", *ROLES)


async def test_each_role_has_the_rights_that_it_needs(guarded: ValkeyCluster, cluster_settings: Settings) -> None:
    def settings_of(role: str) -> Settings:
        login = f"{role}:{quote(password_of(role), safe='')}@"
        return cluster_settings.changed(redis_url=guarded.url.replace("://", f"://{login}"))

    gates = Gates()
    async with (
        Router(settings_of("router")) as router,
        Worker([verb_agent(gates)], settings_of("worker"), name="w1"),
        Client(settings=settings_of("submitter")) as submitter,
        Client(settings=settings_of("follower")) as follower,
    ):
        await soon(router.until_reading())
        words = script(["say", "one"], ["reach", "here"], ["wait", "on"], ["say", "two"])
        task = await submitter.submit(AGENT, "stream", words, durable=True)
        text = asyncio.create_task(_text(follower, task.id))
        await gates.reached("here")
        await asyncio.to_thread(guarded.move, task.stream)
        gates.open("on")
        assert await soon(text) == "onetwo"
        running = await submitter.submit(AGENT, "stream", script(["reach", "held"], ["wait", "never"]))
        await gates.reached("held")
        assert (await running.cancel("enough", timeout=10)).state == "canceled"
        async with StubHub() as hub, HubConnector(hub.address, [f"{AGENT}/stream"], settings_of("connector")):
            await hub.execute("t", script(["say", "at the hub"]))
            assert text_of(await hub.completed("t")) == "at the hub"
            with guarded.outside() as outside:
                await until(lambda: not list(outside.scan_iter("skillstream:connect:*:open")))
        with guarded.outside() as outside:
            await until(lambda: not any(outside.xlen(key) for key in outside.scan_iter("skillstream:inbox:*")))
    assert [entry for node in guarded.nodes for entry in node.ask("ACL", "LOG")] == []


async def _text(client: Client, task_id: str) -> str:
    return "".join([text async for text in client.task(task_id).text()])


@pytest.mark.skipif(OPENSSL is None, reason="no openssl command")
async def test_nodes_are_reached_over_tls(tmp_path: Path) -> None:
    certificate = Certificate.make(tmp_path, "good", names="IP:127.0.0.1")
    node = Node()
    with node.server as server:
        async with TlsFront(server.port, certificate) as front:
            node.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
            node.ask("CONFIG", "SET", "cluster-announce-port", front.port)
            await asyncio.to_thread(until_outside, lambda: node.is_ready(1), "a cluster of one")
            url = f"rediss+cluster://127.0.0.1:{front.port}?ssl_ca_certs={certificate.chain}"
            settings = make_settings(url)
            async with Worker([verb_agent(Gates())], settings), Client(settings=settings) as client:
                task = await client.submit(AGENT, "stream", script(["say", "secured"]))
                assert (await task.result(10)).text == "secured"
            assert front.connections > 3
            with pytest.raises(BrokerUnavailable):
                await soon(Client(f"rediss+cluster://127.0.0.1:{front.port}").open())
