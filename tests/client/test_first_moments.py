"""Commands that are told to stop before they have begun: while they import, and while they wait for a broker."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Process

COMMAND = "from skillstream_command import main\nmain()\n"
SLOW_IMPORT = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
"""
STUBBORN = """
import time
print("importing", flush=True)
try:
    time.sleep(60)
except BaseException:
    print("swallowed", flush=True)
    time.sleep(60)
"""


def command(folder: Path, before: str = "") -> str:
    """The name of a module in the folder that runs the command as its installed script does, behind some lines."""
    (folder / "as_installed.py").write_text(before + COMMAND)
    return "as_installed"


@pytest.mark.parametrize("name", ["skillstream", "redis", "skillstream_worker.cli"])
def test_ctrl_c_while_the_command_imports_is_told_by_its_exit_code_alone(tmp_path: Path, name: str) -> None:
    with Process("agents", module=command(tmp_path, SLOW_IMPORT.format(name=name)), cwd=tmp_path) as begun:
        begun.wait_for("importing")
        begun.send(signal.SIGINT)
        assert begun.wait() == 130
    assert begun.lines == ["importing"]


@pytest.mark.parametrize("more", [(), ("--check",), ("--burst",)])
def test_ctrl_c_while_agents_are_imported_cannot_be_swallowed(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    with Process("worker", "stubborn:agent", *more, module=command(tmp_path), cwd=tmp_path) as begun:
        begun.wait_for("importing")
        begun.send(signal.SIGINT)
        assert begun.wait() == 130
    assert begun.lines == ["importing"]


@pytest.fixture
def silent_url() -> Iterator[str]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"redis://:secret@127.0.0.1:{listening.getsockname()[1]}/0"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("arguments", [("worker", "tests.support.cli_agent:agent"), ("router", "--no-http")])
def test_a_start_that_waits_says_for_what_and_can_be_stopped(
    arguments: tuple[str, ...], signum: signal.Signals, silent_url: str, tmp_path: Path
) -> None:
    database = tmp_path / "ledger.db"
    env = {
        "SKILLSTREAM_REDIS_URL": silent_url, "SKILLSTREAM_DATABASE_URL": f"sqlite:///{database}",
        "SKILLSTREAM_CONNECT_TIMEOUT_S": "60", "XDG_STATE_HOME": str(tmp_path),
    }  # fmt: skip
    with Process(*arguments, env=env) as started:
        line = started.wait_for("waiting for the broker at redis://***@127.0.0.1:")
        started.send(signum)
        assert started.wait() == 0
    assert ("and the database sqlite:///" in line) == (arguments[0] == "router")
    assert "ready" not in str(started.lines)
    assert started.lines[-1].endswith("has stopped")
    assert not database.exists()
