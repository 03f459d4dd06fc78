"""Client, worker and router on a cluster, while slots move from node to node and while a node is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skillstream import Task
from skillstream_schemas.settings import Settings
from tests.topologies.acceptance import accept
from tests.topologies.cluster import ValkeyCluster
from tests.topologies.trio import until

pytestmark = pytest.mark.timeout(120)


@pytest.mark.guarantee("G1", "G2", "G3", "G5", "G7", "G8", "G16")
async def test_the_main_job_while_slots_move(cluster: ValkeyCluster, cluster_settings: Settings, tmp_path: Path) -> None:
    async def move(tasks: list[Task]) -> None:
        for key in (tasks[0].stream, "arq:queue:{steady}", cluster_settings.keys.agents):
            await asyncio.to_thread(cluster.move, key)
        await asyncio.to_thread(cluster.move_at_once, tasks[1].stream)

    report = await accept(cluster_settings, tmp_path / "router.db", cluster.outside, move, talk=True)
    assert not report.violations, "\n".join(report.violations)


@pytest.mark.guarantee("G1", "G2", "G3", "G5", "G7", "G8", "G16")
async def test_the_main_job_while_a_node_is_killed(cluster: ValkeyCluster, cluster_settings: Settings, tmp_path: Path) -> None:
    async def kill(tasks: list[Task]) -> None:
        victim = cluster.owner(tasks[0].stream)
        victim.server.stop()
        await asyncio.to_thread(until, lambda: cluster.owner(tasks[0].stream) is not victim, "another primary")

    report = await accept(cluster_settings, tmp_path / "router.db", cluster.outside, kill, talk=False)
    assert not report.violations, "\n".join(report.violations)
