"""`skillstream dev` answers HTTP without being asked for, and says where."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

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
