"""`skillstream worker` that cannot start: one line, and an exit code."""

from __future__ import annotations

import pytest

from skillstream_schemas.settings import Settings
from tests.support import cli_agent
from tests.support.redis_server import free_port

from .view import View
from .worker_process import ROOT, TARGET, Spawn


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("tests.support.nowhere:agent", "invalid_target: 'tests.support.nowhere:agent': there is no module"),
        ("tests.support.cli_agent:other", "tests.support.cli_agent has no 'other'; its agents: agent"),
        ("tests.support.cli_agent:no_agent", "invalid_target: 'tests.support.cli_agent:no_agent' is a dict, not an Agent"),
        ("tests.support.cli_agent", "is not of the form MODULE:AGENT"),
        ("tests.support.cli_agent:", "is not of the form MODULE:AGENT"),
        (":agent", "is not of the form MODULE:AGENT"),
        ("..:agent", "invalid_target: "),
        ("tests.support:agent", "tests.support has no 'agent'; its agents: none"),
    ],
)
async def test_a_wrong_target_is_one_line_and_a_usage_error(spawn_alone: Spawn, target: str, said: str) -> None:
    worker = await spawn_alone(target)
    assert await worker.ended() == 2
    line = await worker.errors()
    assert said in line
    assert line.startswith("invalid_target: ")
    assert line.count("\n") == 1


async def test_agents_that_can_be_run_are_told(spawn_alone: Spawn) -> None:
    worker = await spawn_alone(TARGET, "--check")
    assert await worker.ended() == 0
    assert worker.process.stdout is not None
    skills = ", ".join(cli_agent.agent.skills)
    assert (await worker.process.stdout.read()).decode() == f"agent {cli_agent.agent.name} can be run: {skills}\n"


async def test_a_module_that_breaks_is_one_line(spawn_alone: Spawn) -> None:
    worker = await spawn_alone("tests.support.broken_agent:agent")
    assert await worker.ended() == 2
    assert (await worker.errors()) == (
        "invalid_target: 'tests.support.broken_agent:agent': importing tests.support.broken_agent raised ValueError: "
        f"agent porter has a skill 'echo' already ({ROOT}/tests/support/broken_agent.py:7) (mend tests.support.broken_agent)\n"
    )


async def test_a_log_level_that_there_is_not(spawn_alone: Spawn) -> None:
    worker = await spawn_alone(TARGET, env={"SKILLSTREAM_LOG_LEVEL": "foo", "SKILLSTREAM_CONCURENCY": "3"})
    assert await worker.ended() == 2
    warning, error = (await worker.errors()).splitlines()
    assert warning == "warning: SKILLSTREAM_CONCURENCY is no setting and is not read; did you mean SKILLSTREAM_CONCURRENCY?"
    assert error.startswith("invalid_settings: log_level: 'foo' is none of DEBUG, INFO")


@pytest.mark.parametrize("more", [(), ("--processes", "2"), ("--burst",)])
async def test_a_broker_that_is_away_at_the_start(spawn_alone: Spawn, more: tuple[str, ...]) -> None:
    worker = await spawn_alone(TARGET, *more, url=f"redis://user:secret@127.0.0.1:{free_port()}/0")
    assert await worker.ended() == 4
    lines = (await worker.errors()).splitlines()
    by_processes = [line for line in lines if line.startswith("worker process ")]
    assert len(by_processes) == ("--processes" in more)
    lines = [line for line in lines if line not in by_processes]
    assert lines
    assert all(line.startswith("broker_unavailable: ") for line in lines)
    assert "secret" not in str(lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--lease", "0.01"), "invalid_settings: lease_s"),
        (("--concurrency", "0"), "invalid_settings: concurrency"),
        (("--grace", "-1"), "invalid_settings: grace_s"),
    ],
)
async def test_a_setting_out_of_range(spawn_alone: Spawn, arguments: tuple[str, ...], said: str) -> None:
    worker = await spawn_alone(TARGET, *arguments)
    assert await worker.ended() == 2
    line = await worker.errors()
    assert line.startswith(said)
    assert line.count("\n") == 1


async def test_a_url_that_is_none(spawn_alone: Spawn) -> None:
    worker = await spawn_alone(TARGET, url="localhost")
    assert await worker.ended() == 2
    assert (await worker.errors()).startswith("invalid_settings: redis_url")


async def test_a_broker_with_other_shards(spawn: Spawn, view: View, settings: Settings) -> None:
    view.redis.set(settings.keys.shards, settings.shards + 1)
    worker = await spawn(TARGET)
    assert await worker.ended() == 2
    assert (await worker.errors()).startswith("shards_mismatch: ")
