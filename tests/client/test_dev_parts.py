"""A part of `skillstream dev` that dies alone: it is said, all is stopped within seconds, and no process is left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dev_folder import dev_environment, until_ready
from tests.support.processes import Process, descendants, is_running, until

AGENT = """
import asyncio
import subprocess
import sys
from skillstream_worker import Agent

agent = Agent("patient")


@agent.skill("wait")
async def wait(message, context):
    if message == "with a child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
        yield f"child {child.pid}\\n"
    yield "begun"
    await asyncio.sleep(600)
"""
START_S = 60.0
VALKEY, KEEPER, WORKER, ROUTER = "/valkey-server", "skillstream.cli.keeper", "skillstream worker", "skillstream router"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return dev_environment(tmp_path, "patient", AGENT)


def ready(dev: Process) -> dict[str, int]:
    """Waits until all runs; process ids by what each runs."""
    until_ready(dev)
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in descendants(dev.pid)}
    # the keeper's arguments name the server too
    found = {KEEPER: [pid for pid, words in commands.items() if KEEPER in words]}
    for part in (VALKEY, WORKER, ROUTER):
        found[part] = [pid for pid, words in commands.items() if part in words and KEEPER not in words]
    return {part: pid for part, (pid,) in found.items()}


def begin(env: dict[str, str], folder: Path, message: str = "x") -> list[str]:
    """Submits a task that never ends by itself; its text once it runs."""
    with Process("submit", "patient", "wait", message, cwd=folder, env=env) as asked:
        assert asked.wait(START_S) == 0, asked.lines
    with Process("tail", asked.lines[-1], "--text", "--json", cwd=folder, env=env) as tail:
        tail.wait_for("begun", START_S)
        return tail.lines


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("part", "code", "said"),
    [
        (VALKEY, 4, "broker_unavailable: the broker was killed by SIGKILL; all is stopped (its log is "),
        (KEEPER, 4, "broker_unavailable: the broker was lost: its keeper was killed by SIGKILL; all is stopped"),
        (WORKER, 1, "worker was killed by SIGKILL by itself; all is stopped"),
        (ROUTER, 1, "router was killed by SIGKILL by itself; all is stopped"),
    ],
)
def test_a_part_that_dies_alone_ends_all(tmp_path: Path, env: dict[str, str], part: str, code: int, said: str) -> None:
    with Process("dev", "patient:agent", cwd=tmp_path, env={**env, "SKILLSTREAM_GRACE_S": "600"}) as dev:
        parts = ready(dev)
        begin(env, tmp_path)
        os.kill(parts[part], signal.SIGKILL)
        dev.wait_for(said, 5)
        assert dev.wait(15) == code
    assert not [part for part, pid in parts.items() if is_running(pid)]
    assert not (tmp_path / ".skillstream" / "dev.json").exists()
    if part == VALKEY:
        assert any(line.startswith("broker ") and "Ready to accept connections" in line for line in dev.lines[2:])


@pytest.mark.timeout(180)
def test_a_stop_under_a_broker_that_stands_still_is_bounded(tmp_path: Path, env: dict[str, str]) -> None:
    with Process("dev", "patient:agent", cwd=tmp_path, env={**env, "SKILLSTREAM_GRACE_S": "1"}) as dev:
        parts = ready(dev)
        os.kill(parts[VALKEY], signal.SIGSTOP)
        dev.send(signal.SIGTERM)
        assert dev.wait(30) == 0
    assert not [part for part, pid in parts.items() if is_running(pid)]


@pytest.mark.timeout(180)
def test_a_broker_that_dies_during_the_grace_period_ends_it(tmp_path: Path, env: dict[str, str]) -> None:
    with Process("dev", "patient:agent", cwd=tmp_path, env={**env, "SKILLSTREAM_GRACE_S": "600"}) as dev:
        parts = ready(dev)
        begin(env, tmp_path)
        dev.send(signal.SIGINT)
        dev.wait_for("waiting up to 600 s", START_S)
        os.kill(parts[VALKEY], signal.SIGKILL)
        assert dev.wait(15) == 4
    assert not [part for part, pid in parts.items() if is_running(pid)]


@pytest.mark.timeout(180)
def test_what_a_skill_has_started_holds_up_no_stop(tmp_path: Path, env: dict[str, str]) -> None:
    with Process("dev", "patient:agent", cwd=tmp_path, env={**env, "SKILLSTREAM_GRACE_S": "1"}) as dev:
        ready(dev)
        text = "".join(begin(env, tmp_path, "with a child"))
        (child,) = (int(word.split("\\n")[0]) for word in text.split("child ")[1:])
        try:
            began_s = time.monotonic()
            dev.send(signal.SIGTERM)
            until(lambda: dev.exit_code is not None, 20)
            assert dev.exit_code == 0
            assert time.monotonic() - began_s < 20
            assert is_running(child), "else nothing was held open"
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.timeout(120)
def test_who_reads_no_more_wants_no_more(tmp_path: Path, env: dict[str, str]) -> None:
    with in_a_terminal(tmp_path, env, "patient:agent", stderr=subprocess.STDOUT) as dev:
        assert dev.stdout is not None
        assert dev.stdout.readline().startswith("broker ")
        dev.stdout.close()
        assert dev.wait(START_S) == 0
    assert not list((tmp_path / ".skillstream").glob("dev.json"))


@pytest.mark.timeout(120)
def test_ctrl_c_while_the_agents_are_imported_is_no_traceback(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "endless.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(600)\n")
    with in_a_terminal(tmp_path, env, "endless:agent", stderr=subprocess.PIPE) as dev:
        until((tmp_path / "begun").exists, START_S)
        (checking,) = descendants(dev.pid)
        assert os.getpgid(checking) != dev.pid, "Ctrl-C would interrupt its imports, with a traceback"
        os.killpg(dev.pid, signal.SIGINT)
        _, said = dev.communicate(timeout=15)
    assert (dev.returncode, said) == (130, "")
    until(lambda: not is_running(checking))
    assert not (tmp_path / ".skillstream").exists()


@contextlib.contextmanager
def in_a_terminal(folder: Path, env: dict[str, str], target: str, *, stderr: int) -> Iterator[subprocess.Popen[str]]:
    """A `dev` in a process group of its own, as a shell starts one: Ctrl-C reaches all of the group."""
    dev = subprocess.Popen(
        [sys.executable, "-m", "skillstream", "dev", target],
        stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=folder, env={**os.environ, **env}, start_new_session=True,
    )  # fmt: skip
    try:
        yield dev
    finally:
        if dev.poll() is None:
            dev.kill()
        dev.communicate() if dev.stdout and not dev.stdout.closed else dev.wait()
