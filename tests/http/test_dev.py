"""HTTP of the commands: `dev` answers without being asked for, and says where; a router takes a free port if told so."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import httpx
import pytest

from skillstream_schemas.settings import Settings
from tests.support.dev_folder import dev_environment, until_ready
from tests.support.processes import Process

AGENT = """
from skillstream_worker import Agent

agent = Agent("greeter")


@agent.skill("greet")
async def greet(message, context):
    yield "hello "
    yield message
"""


@pytest.mark.timeout(90)
def test_a_task_over_http_a_minute_after_installing(tmp_path: Path) -> None:
    env = dev_environment(tmp_path, "greeting", AGENT)
    with Process("dev", "greeting:agent", "--data", str(tmp_path / "data"), env=env) as dev:
        until_ready(dev)
        (url,) = (line.split()[-1] for line in dev.lines if "HTTP at " in line)
        order = {"agent": "greeter", "skill": "greet", "message": "you", "stream": True}
        text = httpx.post(f"{url}/v1/tasks", json=order, timeout=30, trust_env=False).text
        assert '"type":"final","state":"completed","text":"hello you"' in text
        dev.send(signal.SIGINT)
        assert dev.wait(30) == 0


@pytest.mark.timeout(60)
def test_a_router_takes_a_free_port_only_where_it_is_told_to(settings: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        database = f"sqlite:///{tmp_path / 'router.db'}"
        asked = ("router", "--redis", settings.redis_url, "--database", database, "--http", f"127.0.0.1:{port}")
        with Process(*asked) as refused:
            assert refused.wait(30) == 2
        assert refused.lines[-1].startswith(f"address_in_use: 127.0.0.1:{port}: in use"), refused.lines
        with Process(*asked, "--or-free-port") as router:
            router.wait_for(f"port {port} is in use by another process: a free one is taken instead", 30)
            url = router.wait_for("HTTP at ", 30).split()[-1]
            assert url != f"http://127.0.0.1:{port}"
            assert httpx.get(f"{url}/healthz", timeout=10, trust_env=False).status_code == 200
            router.send(signal.SIGTERM)
            assert router.wait(30) == 0
