"""`skillstream dev` in one folder twice, and output that a relay must not choke on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.dev_folder import dev_environment, until_ready
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
    env = dev_environment(tmp_path, "loud", AGENT)
    dev = ("dev", "loud:agent", "--data", str(tmp_path / "data"))
    with Process(*dev, env=env) as first:
        until_ready(first)
        with Process(*dev, env=env) as second:
            assert second.wait(30) == 2
            assert "is in use by process" in "\n".join(second.lines)
            assert "asking the dev" not in "\n".join(second.lines), "one dev has nothing to ask another"
        for message, code in (("go", 0), ("interrupt", 1), ("again", 0)):
            with Process("submit", "loud", "shout", message, "--follow", env=env) as asked:
                assert asked.wait(30) == code, asked.lines
        first.send(signal.SIGINT)
        assert first.wait(30) == 0
    assert max(map(len, first.lines)) < 5000


@pytest.mark.timeout(90)
def test_all_ends_with_a_dev_that_was_killed(tmp_path: Path) -> None:
    env = dev_environment(tmp_path, "loud", AGENT)
    dev = ("dev", "loud:agent", "--data", str(tmp_path / "data"))
    with Process(*dev, env=env) as first:
        until_ready(first)
        started = descendants(first.pid)
        assert len(started) >= 4  # worker, router, the broker and its keeper
        first.send(signal.SIGKILL)
        assert first.wait(30) == -signal.SIGKILL
        until(lambda: not any(map(is_running, started)), 30)
    with Process(*dev, env=env) as second:  # nothing of the first is in the way
        until_ready(second)
        second.send(signal.SIGINT)
        assert second.wait(30) == 0
