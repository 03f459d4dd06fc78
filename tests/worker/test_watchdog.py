"""A skill that holds the event loop longer than its lease: named in the log, fenced, its task done by another worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from skillstream import Client
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, TaskContext, Worker
from tests.support.processes import Process

agent = Agent("blocker")


@agent.skill("hold", max_attempts=5)
async def hold(message: str, context: TaskContext) -> str:
    time.sleep(float(message))  # noqa: ASYNC251 — the fault under test
    return "held"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.ERROR, logger="skillstream_worker.watchdog"):
        yield caplog


async def test_a_skill_that_holds_the_loop_is_named(
    settings: Settings, outside: redis.Redis, logged: pytest.LogCaptureFixture
) -> None:
    settings = settings.changed(lease_s=4)
    async with Worker([agent], settings), Client(settings=settings) as client:
        task = await client.submit("blocker", "hold", str(settings.lease_s * 0.75))
        assert (await task.result(10)).text == "held"
    (record,) = logged.records
    assert "loop_blocked: skill blocker/hold (at " in record.getMessage()


@pytest.mark.guarantee("G4")
async def test_a_worker_that_was_held_beyond_its_lease_is_fenced(
    settings: Settings, outside: redis.Redis, tmp_path: Path
) -> None:
    url = settings.redis_url
    worker = ("worker", "tests.support.blocking_agent:agent", "--redis", url, "--lease", "1")
    shards = {"SKILLSTREAM_SHARDS": str(settings.shards), "SKILLSTREAM_POLL_S": "0.2"}
    with Process(*worker, env=shards) as first:
        first.wait_for("is ready")
        async with Client(settings=settings) as client:
            task = await client.submit("blocking", "hold_first", str(tmp_path / "let go"))
            async for event in task.events():
                if event.type == "chunk":
                    break
            with Process(*worker, env=shards) as second:
                second.wait_for("is ready")
                final = await task.result(30)
                (tmp_path / "let go").touch()
                first.wait_for("given up")  # by its renewer (lease_lost), or by what it says first: whichever is sooner
    assert final.text == "attempt 2"
    entries = [str(raw) for raw, _ in cast(Any, outside.xrange(task.stream))]
    assert entries[-1].startswith("2-")
    assert any("loop_blocked: skill blocking/hold_first" in line for line in first.lines)
