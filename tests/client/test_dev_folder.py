"""`skillstream dev` in one folder twice, and output that a relay must not choke on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.processes import Process, descendants, is_running, until

AGENT = """
import sys
from skillstream_worker import Agent

print("x" * 200_000)
agent = Agent("loud")


@agent.skill("shout")
async def shout(message, context):
    sys.stderr.write("y" * 200_000 + "\\\\n")
    if message == "interrupt":
        raise KeyboardInterrupt("from a skill")
    return "done"
"""


@pytest.mark.timeout(90)
def test_a_folder_has_one_dev_and_long_lines_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(AGENT)
    env = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    data = ("--data", str(tmp_path / "data"))
    with Process("dev", "loud:agent", *data, env=env) as first:
        for _ in ("worker", "router"):  # in any order
            first.wait_for("is ready", 30)
        with Process("dev", "loud:agent", *data, env=env) as second:
            assert second.wait(30) == 2
            assert "is in use by process" in "\n".join(second.lines)
        for message, code in (("go", 0), ("interrupt", 1), ("again", 0)):
            with Process("submit", "loud", "shout", message, "--follow", env=env) as asked:
                assert asked.wait(30) == code, asked.lines
        first.send(signal.SIGINT)
        assert first.wait(30) == 0
    assert max(map(len, first.lines)) < 5000


@pytest.mark.timeout(90)
def test_all_ends_with_a_dev_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(AGENT)
    env = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    }
    data = ("--data", str(tmp_path / "data"))
    with Process("dev", "loud:agent", *data, env=env) as first:
        for _ in ("worker", "router"):
            first.wait_for("is ready", 30)
        started = descendants(first.pid)
        assert len(started) >= 4  # worker, router, the broker and its keeper
        first.send(signal.SIGKILL)
        assert first.wait(30) == -signal.SIGKILL
        until(lambda: not any(map(is_running, started)), 30)
    with Process("dev", "loud:agent", *data, env=env) as second:  # nothing of the first is in the way
        for _ in ("worker", "router"):
            second.wait_for("is ready", 30)
        second.send(signal.SIGINT)
        assert second.wait(30) == 0
