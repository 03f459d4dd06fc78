"""Client, worker and router on one server, which is killed and comes back with its append-only file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import redis

from skillstream import Task
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, valkey_binary
from tests.topologies.acceptance import accept


@pytest.mark.timeout(120)
@pytest.mark.guarantee("G1", "G2", "G3", "G5", "G7", "G8", "G16")
async def test_the_main_job_over_a_restart(tmp_path: Path) -> None:
    with RedisServer(valkey_binary(), "--appendonly", "yes", "--appendfsync", "always", keep_data=tmp_path) as server:
        database = tmp_path / "router.db"
        settings = make_settings(server.url, database_url=f"sqlite:///{database}", lease_s=3, patience_s=20)

        async def restart(tasks: list[Task]) -> None:
            server.stop()
            await asyncio.to_thread(server.start)

        def outside() -> redis.Redis:
            return redis.Redis(port=server.port, decode_responses=True)

        report = await accept(settings, database, outside, restart, talk=True)
    assert not report.violations, "\n".join(report.violations)
