"""The client's commands, as processes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import skillstream
from skillstream_schemas.settings import Settings
from tests.support.processes import Process

from .hand_worker import HandWorker


@pytest.fixture
def env(settings: Settings, tmp_path: Path) -> dict[str, str]:
    return {
        "SKILLSTREAM_REDIS_URL": settings.redis_url,
        "SKILLSTREAM_SHARDS": str(settings.shards),
        "XDG_STATE_HOME": str(tmp_path),
    }


def test_the_version_is_told() -> None:
    with Process("--version") as asked:
        assert asked.wait() == 0
    assert asked.lines == [f"skillstream {skillstream.__version__}"]


@pytest.mark.parametrize("how", [("tail", "t1", "--text"), ("tail", "t1", "--after", "1-1", "--text")])
def test_structured_output_is_shown_where_there_is_no_text(hand: HandWorker, env: dict[str, str], how: tuple[str, ...]) -> None:
    hand.submit("t1")
    hand.open("t1")
    hand.finish("t1", "1-2", "", chunks=0, data='{"sum": 3}')
    with Process(*how, env=env) as tail:
        assert tail.wait() == 0
    assert tail.lines == ['{"sum":3}']


def test_ctrl_c_ends_the_following_alone(hand: HandWorker, env: dict[str, str]) -> None:
    hand.submit("t1")
    hand.open("t1")
    hand.say("t1", "begun\n")
    with Process("tail", "t1", "--json", env=env) as tail:
        tail.wait_for("begun")
        tail.send(signal.SIGINT)
        assert tail.wait() == 130
    assert tail.lines[-1] == "task t1 goes on: skillstream tail t1 follows it, skillstream cancel t1 ends it"
    assert [entry for entry, _ in hand.entries("t1")] == ["0-1", "1-1", "1-2"]


def test_cancel_says_what_it_waits_for(hand: HandWorker, env: dict[str, str]) -> None:
    hand.submit("t1")
    hand.open("t1")
    with Process("cancel", "t1", env=env) as cancel:
        cancel.wait_for("cancellation recorded, waiting for the worker")
        hand.finish("t1", "1-2", "", chunks=0, state="canceled")
        assert cancel.wait() == 3
    assert cancel.lines[-1] == "canceled"


@pytest.mark.parametrize("timeout", ["0", "0.2", "0.7"])
def test_cancel_waits_as_long_as_it_is_told(hand: HandWorker, env: dict[str, str], timeout: str) -> None:
    hand.submit("t1")
    hand.open("t1")
    with Process("cancel", "t1", "--timeout", timeout, env=env) as cancel:
        assert cancel.wait() == 1
    assert cancel.lines[-1].startswith("result_timeout: ")
    assert len(hand.entries("t1")) == 2


def test_a_wrong_password_is_told_as_such(env: dict[str, str], settings: Settings) -> None:
    url = settings.redis_url.replace("://", "://nobody:wrong@")
    with Process("agents", "--redis", url, env=env) as asked:
        assert asked.wait() == 4
    assert asked.lines[-1].startswith("broker_access_denied: ")
    assert "wrong@" not in asked.lines[-1]


def test_an_event_id_is_no_name(env: dict[str, str]) -> None:
    with Process("tail", "t1", "--after", "x", env=env) as asked:
        assert asked.wait() == 2
    assert asked.lines == [
        "invalid_name: 'x' is not an event id (such as 1-2, the second entry of attempt 1; 0 is the beginning)"
    ]
