"""What a wrong module, a wrong decorator and an empty agent are told."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillstream_schemas.errors import InvalidTarget
from skillstream_worker import Agent
from skillstream_worker.loading import load_agent

_numbers = itertools.count(1)
HEAD = "from skillstream_worker import Agent\nagent = Agent('a')\n"
Load = Callable[[str], tuple[str, Path]]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads `agent` of a module with this text; what it is told, and the module's file."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load(text: str) -> tuple[str, Path]:
        path = tmp_path / f"authors_{next(_numbers)}.py"
        path.write_text(text)
        with pytest.raises(InvalidTarget) as raised:
            load_agent(f"{path.stem}:agent")
        return str(raised.value), path

    return load


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\ny = 1 / 0\n", 2, "ZeroDivisionError: division by zero"),
        ("def f(:\n", 1, "SyntaxError: "),
        ("import json\n\njson.loads('{')\n", 3, "JSONDecodeError: "),
        (HEAD + "agent.skill('')\n", 3, "ValueError: skill '' of agent 'a': a skill's name has 1 to 256 characters"),
        (
            HEAD + "@agent.skill\nasync def s(message, context): ...\n",
            3,
            'TypeError: a skill has a name: @agent.skill("research")',
        ),
        (HEAD + "raise SystemExit(3)\n", 3, "SystemExit: 3"),
        ("from skillstream_worker import Agent\n\nagent = Agent('my agent')\n", 3, "the agent name 'my agent' cannot be used"),
        (
            HEAD + "agent.skill('s', price_usd='5 cents')\n",
            3,
            "invalid_request: skill 's' of agent 'a': price_usd: '5 cents' is not a price in USD (an amount such as \"0.05\")",
        ),
    ],
)
def test_a_module_that_breaks_is_told_with_its_line(refused: Load, text: str, line: int, said: str) -> None:
    error, path = refused(text)
    assert said in error
    assert f"({path}:{line})" in error
    assert "MODULE:AGENT names" not in error


def test_a_package_that_the_module_lacks_is_named(refused: Load) -> None:
    error, path = refused("import os\nimport a_package_that_is_not_there\n")
    assert f"{path.stem} imports 'a_package_that_is_not_there', which is not there ({path}:2)" in error


def test_an_agent_without_skills_is_refused(refused: Load) -> None:
    assert "agent a has no skills" in refused(HEAD)[0]


@pytest.mark.parametrize(("named", "meant"), [("hello.py:agent", "hello:agent"), ("./some/hello.py:agent", "some.hello:agent")])
def test_who_names_a_file_is_told_the_module(named: str, meant: str) -> None:
    with pytest.raises(InvalidTarget, match=f"did you mean {meant}"):
        load_agent(named)


def _nothing() -> str:
    return ""


def _one(message: str) -> str:
    return message


def _three(message: str, context: Any, more: str) -> str:
    return message + more


def _keyword(message: str, context: Any, *, more: str) -> str:
    return message + more


@pytest.mark.parametrize("function", [_nothing, _one, _three, _keyword])
def test_a_skill_with_other_parameters_is_refused(function: Any) -> None:
    with pytest.raises(TypeError, match="skill 's' is called with a message and a context, and its parameters are"):
        Agent("a").skill("s")(function)


def test_more_parameters_with_defaults_are_no_matter() -> None:
    agent = Agent("a")

    @agent.skill("s")
    def function(message: str, context: Any, more: str = "", *rest: str, **named: str) -> str:
        return message

    assert list(agent.skills) == ["s"]


def test_what_on_retry_may_be_is_told() -> None:
    with pytest.raises(ValueError, match="on_retry 'never' is none of restart, resume, fail"):
        Agent("a").skill("s", on_retry="never")
