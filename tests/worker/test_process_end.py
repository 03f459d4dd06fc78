"""Worker processes end when they are told to, and with the process that started them, whatever their skills do."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import redis

from skillstream import SyncClient
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.settings import Settings
from tests.support.processes import ROOT, START_S, Process, descendants, is_running, until
from tests.support.stubborn_agent import agent

from .view import View

TARGET = "tests.support.stubborn_agent:agent"
AGENT = agent.name


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "SKILLSTREAM_REDIS_URL": settings.redis_url, "SKILLSTREAM_SHARDS": str(settings.shards),
        "SKILLSTREAM_CANCEL_GRACE_S": "0.3", "SKILLSTREAM_GRACE_S": "0.2", "SKILLSTREAM_POLL_S": "0.2",
    }  # fmt: skip


@pytest.mark.guarantee("G12")
@pytest.mark.parametrize("skill", ["swallow", "thread", "to_thread"])
def test_a_stopped_worker_ends_though_its_skill_does_not(
    settings: Settings, outside: redis.Redis, view: View, skill: str
) -> None:
    with Process("worker", TARGET, env=_environment(settings)) as worker, SyncClient(settings=settings) as client:
        worker.wait_for("is ready")
        task = client.submit(AGENT, skill, "")
        until(lambda: view.texts(task.id) == ["kept"])
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
    assert any("has stopped" in line for line in worker.lines)
    assert view.shape(task.id) == ["submitted", "working", "chunk kept", "drain"]
    assert view.lease(task.id, AGENT) is None
    score = view.score(task.id, AGENT)
    assert score is not None
    assert score <= view.now_ms()
    assert any("skill_stuck" in line for line in worker.lines) == (skill != "to_thread")
    outside.delete(arq_keys.queue(AGENT))


@pytest.mark.guarantee("G12")
def test_workers_end_with_the_process_that_started_them(settings: Settings, outside: redis.Redis, view: View) -> None:
    """Its tasks are handed back, by a process that was killed from above and not told by a signal."""
    command = ("worker", TARGET, "--processes", "2", "--concurrency", "1")
    with Process(*command, env=_environment(settings)) as parent, SyncClient(settings=settings) as client:
        for _ in range(2):
            parent.wait_for("is ready")
        tasks = [client.submit(AGENT, "swallow", "") for _ in range(2)]
        until(lambda: all(view.texts(task.id) == ["kept"] for task in tasks))
        children = descendants(parent.pid)
        assert len(children) == 2
        parent.send(signal.SIGKILL)
        until(lambda: not any(map(is_running, children)))
    assert [view.shape(task.id)[-1] for task in tasks] == ["drain", "drain"]
    outside.delete(arq_keys.queue(AGENT))


@pytest.mark.parametrize("stands_still", [True, False])
def test_a_process_ends_by_force_whose_event_loop_stands_still(stands_still: bool) -> None:
    """Its parent has died: nobody else would."""
    command = [sys.executable, "-m", "tests.support.orphan", "still" if stands_still else ""]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(START_S) == (75 if stands_still else 0)
