"""Registration at Agentverse and look-ups in its almanac, against a stub of both on loopback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from uagents_core.identity import Identity

from skillstream_router.connect.agentverse import ChatAddress, ChatBridge
from skillstream_router.connect.agentverse.envelopes import PROTOCOL_DIGEST
from skillstream_router.connect.agentverse.peers import Peers
from skillstream_schemas.connect_errors import PeerUnavailable
from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.settings import Settings
from skillstream_worker import Worker
from tests.support.verbs import BOUND_S

from .conftest import SEED


class StubAgentverse:
    """Responsible for the two interfaces: `calls` are those that came, `endpoints` what the almanac knows."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, str], Any]] = []
        self.endpoints: dict[str, str] = {}
        self.status = 200
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def _answer(self, body: Any) -> None:
                stub.calls.append((self.command, self.path, dict(self.headers), body))
                status, answer = stub.answer(self.command, self.path)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, method: str, path: str) -> tuple[int, Any]:
        if path.endswith("/challenge"):
            return self.status, {"challenge": "prove it"}
        if path.startswith("/v1/almanac/agents/") and method == "GET":
            url = self.endpoints.get(path.rsplit("/", 1)[1])
            return (200, {"endpoints": [{"url": url, "weight": 1}]}) if url else (404, {})
        return (404, {}) if method == "GET" else (self.status, {})

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def agentverse() -> Iterator[StubAgentverse]:
    """A stub of Agentverse."""
    stub = StubAgentverse()
    yield stub
    stub.close()


async def test_agents_are_registered_with_proof_endpoint_and_protocol(
    settings: Settings, worker: Worker, agentverse: StubAgentverse
) -> None:
    address = ChatAddress(SEED, port=0, agentverse=agentverse.url, endpoint="https://chat.example/submit", agentverse_key="key")
    async with ChatBridge(address, ["verbs"], settings) as bridge:
        assert bridge.registrar is not None
        await asyncio.wait_for(bridge.registrar.registered.wait(), BOUND_S)
        (ours,) = bridge.agents
    posts = {path: (headers, body) for method, path, headers, body in agentverse.calls if method == "POST"}
    proof = posts["/v2/identity"][1]
    assert proof["address"] == ours
    assert proof["challenge"] == "prove it"
    headers, registered = posts["/v2/agents"]
    assert (headers["authorization"], registered["endpoints"]) == (
        "Bearer key",
        [{"url": "https://chat.example/submit", "weight": 1}],
    )
    assert (registered["name"], registered["protocols"]) == ("verbs", [PROTOCOL_DIGEST])
    assert "**stream**" in registered["profile"]["readme"]
    assert posts[f"/v1/almanac/agents/{ours}/status"][1]["is_active"] is True


async def test_a_refused_registration_is_said_and_the_bridge_goes_on(
    settings: Settings, worker: Worker, agentverse: StubAgentverse, caplog: pytest.LogCaptureFixture
) -> None:
    agentverse.status = 401
    address = ChatAddress(SEED, port=0, agentverse=agentverse.url, endpoint="https://chat.example/submit", agentverse_key="key")
    async with ChatBridge(address, ["verbs"], settings) as bridge:
        assert bridge.registrar is not None
        await asyncio.wait_for(bridge.registrar.registered.wait(), BOUND_S)
        assert list(bridge.registrar.refused) == ["verbs"]
    assert "peer_refused" in caplog.text


async def test_peers_are_looked_up_and_only_public_endpoints_are_called(agentverse: StubAgentverse) -> None:
    known, private, unknown = (str(Identity.from_seed(name, 0).address) for name in ("known", "private", "unknown"))
    agentverse.endpoints = {known: "https://agent.example/submit", private: "http://127.0.0.1:6379/"}
    peers = Peers({private: "http://10.0.0.1/submit"}, agentverse.url)
    for _ in range(2):
        assert await peers.endpoint(known) == "https://agent.example/submit"
    assert len(agentverse.calls) == 1, "asked once a minute"
    peers.forget(known)
    await peers.endpoint(known)
    assert len(agentverse.calls) == 2
    assert await peers.endpoint(private) == "http://10.0.0.1/submit", "the operator's word counts"
    with pytest.raises(PeerUnavailable, match="no endpoint"):
        await peers.endpoint(unknown)
    for url in (
        "http://127.0.0.1:6379/",
        "http://localhost/x",
        "http://[::1]/x",
        "http://192.168.1.1/",
        "file:///etc",
        "gopher://a",
    ):
        agentverse.endpoints[unknown] = url
        with pytest.raises(PeerUnavailable, match="not public"):
            await peers.endpoint(unknown)


@pytest.mark.parametrize("half", [{"endpoint": "https://x"}, {"agentverse_key": "k"}, {"agentverse": "no url"}])
def test_half_a_registration_is_refused(half: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        ChatAddress(SEED, **half)


def test_the_library_leaves_no_file_and_no_handlers(tmp_path: Path) -> None:
    code = "import skillstream_router.connect.agentverse, logging; print(logging.getLogger().handlers)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert (done.stdout.strip(), done.stderr, list(tmp_path.iterdir())) == ("[]", "", [])
