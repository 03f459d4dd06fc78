"""A worker is killed in the middle of a stream: its follower hears of the restart, and no text stands twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from skillstream_schemas.settings import Settings
from tests.support.processes import Process

from .sse import follow, read_all

AGENT = """
import asyncio
from skillstream_worker import Agent, Chunking

agent = Agent("counter")


async def count(message, context):
    said = len(context.partial_text.split())
    for number in range(said, 40):
        yield f"{number} "
        await asyncio.sleep(0.02)


agent.skill("restart", chunking=Chunking.off())(count)
agent.skill("resume", chunking=Chunking.off(), on_retry="resume")(count)
"""
TEXT = "".join(f"{number} " for number in range(40))
LEASE_S = 3.0


@pytest.mark.timeout(90)
@pytest.mark.guarantee("G5", "G10")
async def test_a_killed_worker_is_told_as_a_reset(http: httpx.AsyncClient, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(AGENT)
    env = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "SKILLSTREAM_REDIS_URL": settings.redis_url, "SKILLSTREAM_SHARDS": str(settings.shards),
        "SKILLSTREAM_LEASE_S": str(LEASE_S), "SKILLSTREAM_POLL_S": "0.2",
    }  # fmt: skip
    with ExitStack() as stack:
        workers = [stack.enter_context(Process("worker", "counting:agent", env=env)) for _ in range(3)]
        for worker in workers:
            await asyncio.to_thread(worker.wait_for, "is ready", 30)
        for skill in ("restart", "resume"):
            task_id = (await http.post("/v1/tasks", json={"agent": "counter", "skill": skill, "message": ""})).json()["id"]
            events = await _followed_over_a_kill(http, task_id, workers)
            assert [event["id"] for event in events if "id" in event] == [event["id"] for event in await _stream(http, task_id)]
            text = ""
            for event in events:
                if event["type"] == "reset":
                    text = text[: event["keep"]]
                elif event["type"] == "chunk":
                    text += event["text"]
            assert text == events[-1]["text"] == TEXT
            assert [event["type"] for event in events].count("final") == 1
            (reset,) = [event for event in events if event["type"] == "reset"]
            assert (reset["attempt"], reset["keep"] > 0) == (2, skill == "resume")


async def _followed_over_a_kill(http: httpx.AsyncClient, task_id: str, workers: list[Process]) -> list[dict[str, Any]]:
    """All events of a follower that stays, while the process that runs the task is killed at its tenth event."""
    events: list[dict[str, Any]] = []
    async with asyncio.timeout(20), follow(http, task_id) as source:
        async for event in source.aiter_sse():
            events.append(json.loads(event.data))
            if len(events) == 10:
                name = next(event["worker"] for event in events if "worker" in event)
                (running,) = [worker for worker in workers if f"-{worker.pid}-" in name]
                running.send(signal.SIGKILL)
    return events


async def _stream(http: httpx.AsyncClient, task_id: str) -> list[dict[str, Any]]:
    return [event for event in await read_all(http, task_id) if "id" in event]
