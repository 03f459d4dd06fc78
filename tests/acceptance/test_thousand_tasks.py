"""The main job with whole processes: two workers, a router, a submitter, and a checker that shares no code with them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest
import redis

from tests.acceptance.checker import check
from tests.support.processes import ROOT, Process
from tests.support.redis_server import RedisServer, valkey_binary

TASKS = 1000
_ALL_S = 120.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small corpus to search."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for number in range(12):
        text = (
            f"# Book {number}\n\nA stream of number {number} has one end.\n\n## Notes\n\nWho follows it sees each event once.\n"
        )
        (shelf / f"book{number}.md").write_text(text)
    return shelf


@pytest.mark.timeout(180)
@pytest.mark.guarantee("G1", "G2", "G3", "G5", "G6", "G7", "G16")
def test_a_thousand_tasks_end_once_and_are_charged_once(tmp_path: Path, folder: Path) -> None:
    database = tmp_path / "router.db"
    with RedisServer(valkey_binary()) as server:
        url = server.url
        worker = ("worker", "examples.librarian:agent", "--redis", url)
        with (
            Process(*worker) as first,
            Process(*worker) as second,
            Process("router", "--redis", url, "--database", f"sqlite:///{database}") as router,
        ):
            for process in (first, second, router):
                process.wait_for("is ready")
            task_ids = _submit(url, folder)
            assert len(set(task_ids)) == TASKS
            with server.client() as broker:
                _wait_until_routed(broker, task_ids)
            report = check(url, str(database), task_ids)
            for process in (first, second, router):
                process.send(signal.SIGTERM)
            codes = [process.wait() for process in (first, second, router)]
    assert report.violations == []
    assert dict(report.states) == {"completed": TASKS * 4 // 5, "input-required": TASKS // 5}
    assert report.chunks > 0
    assert report.charged_micros > 0
    assert codes == [0, 0, 0]


def _submit(url: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "tests.acceptance.submit_tasks", url, str(TASKS), str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=60).stdout.split()


def _wait_until_routed(broker: redis.Redis, task_ids: list[str]) -> None:
    """Waits until the router has read every ring and no job is left."""
    rings = jobs = 0
    give_up = time.monotonic() + _ALL_S
    while time.monotonic() < give_up:
        # jobs first: once there are none, every final has rung
        jobs = sum(int(cast(int, broker.zcard(key))) for key in broker.scan_iter("arq:queue:*"))
        rings = sum(int(cast(int, broker.xlen(key))) for key in broker.scan_iter("skillstream:inbox:*"))
        if rings == 0 and jobs == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"{rings} rings and {jobs} jobs are left after {_ALL_S} s")
