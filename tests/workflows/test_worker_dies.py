"""A worker process that dies in the middle of a workflow: another one runs it again, once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from skillstream import Client, ResetEvent
from skillstream_schemas.event import ChunkEvent, FinalEvent, StatusEvent
from skillstream_schemas.settings import Settings
from tests.support.processes import Process

READY_S = 30.0
BOUND_S = 15.0
"""Longer than the lease and a second."""


class Door:
    """Responsible for the socket at which the model waits: opened once, it stays open."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()

    async def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody waits."""
        await reader.readline()
        self.entered.set()
        await self.opened.wait()
        writer.close()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    made = Door(tmp_path / "door")
    server = await asyncio.start_unix_server(made.enter, made.path)
    yield made
    made.opened.set()
    server.close()
    await server.wait_closed()


@pytest.fixture
def workers(settings: Settings) -> Iterator[list[Process]]:
    """Two worker processes."""
    env = {
        "SKILLSTREAM_REDIS_URL": settings.redis_url, "SKILLSTREAM_SHARDS": str(settings.shards),
        "SKILLSTREAM_POLL_S": "0.2", "SKILLSTREAM_LEASE_S": "2", "SKILLSTREAM_GRACE_S": "0.1",
    }  # fmt: skip
    target = "tests.support.flow_agent:agent"
    with Process("worker", target, env=env) as first, Process("worker", target, env=env) as second:
        for process in (first, second):
            process.wait_for("is ready", READY_S)
        yield [first, second]
        for process in (first, second):
            if process.exit_code is None:
                process.send(signal.SIGTERM)
                process.wait()


@pytest.mark.guarantee("G1", "G10")
async def test_a_workflow_goes_on_with_another_worker(
    workers: list[Process], door: Door, client: Client, outside: redis.Redis
) -> None:
    task = await client.submit("flow", "speak", door.path)
    events: list[Any] = []
    async with asyncio.timeout(BOUND_S):
        async for event in task.events():
            events.append(event)
            if isinstance(event, ChunkEvent) and event.id.attempt == 1:
                await door.entered.wait()
                opening = next(each for each in events if isinstance(each, StatusEvent) and each.worker)
                holder = next(process for process in workers if f"-{process.pid}-" in str(opening.worker))
                holder.send(signal.SIGKILL)
                door.opened.set()  # the next attempt goes through
    final = events[-1]
    assert isinstance(final, FinalEvent)
    assert (final.state, final.text, final.metadata["characters"]) == ("completed", "Tides come and go.", 18)
    assert [event.attempt for event in events if isinstance(event, ResetEvent)] == [2]
    assert [event.id.attempt for event in events if isinstance(event, ChunkEvent)][-1] == 2
    entries: Any = outside.xrange(task.stream)
    assert [fields["type"] for _, fields in entries].count("final") == 1
    assert "".join(fields["text"] for id_, fields in entries if fields["type"] == "chunk" and id_[0] == "2") == final.text
