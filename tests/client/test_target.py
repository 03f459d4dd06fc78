"""Where a program or command that is told no broker asks: never somewhere else without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillstream import Client
from skillstream.cli.target import _say_whose, publish_running, settings_from
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, Worker

ELSEWHERE, HERE = "redis://elsewhere:1/0", "redis://here:2/0"


async def test_programs_ask_the_environments_broker_unless_they_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKILLSTREAM_REDIS_URL", ELSEWHERE)
    monkeypatch.setenv("SKILLSTREAM_SHARDS", "4")
    assert Client().settings.redis_url == Worker([Agent("a")]).settings.redis_url == ELSEWHERE
    named = Client(HERE).settings
    assert (named.redis_url, named.shards) == (HERE, 4)
    assert Client(settings=Settings(redis_url=HERE)).settings == Settings(redis_url=HERE)


def test_a_command_says_that_it_asks_the_dev_of_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SKILLSTREAM_REDIS_URL", "SKILLSTREAM_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    data, other = tmp_path / "project" / ".skillstream", tmp_path / "other"
    data.mkdir(parents=True)
    other.mkdir()
    publish_running(Settings(redis_url=HERE), data)
    _say_whose.cache_clear()

    monkeypatch.chdir(data.parent)
    assert settings_from().redis_url == HERE
    assert capsys.readouterr().err == ""

    monkeypatch.chdir(other)
    assert [settings_from().redis_url for _ in range(2)] == [HERE] * 2
    assert capsys.readouterr().err.count(f"asking the dev of {data}") == 1
    assert settings_from(redis_url=ELSEWHERE, database_url="sqlite:///x.db").redis_url == ELSEWHERE
    monkeypatch.setenv("SKILLSTREAM_REDIS_URL", ELSEWHERE)
    monkeypatch.setenv("SKILLSTREAM_DATABASE_URL", "sqlite:///x.db")
    _say_whose.cache_clear()
    assert settings_from().redis_url == ELSEWHERE
    assert capsys.readouterr().err == ""
