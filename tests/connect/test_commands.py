"""The connectors on the command line: what is missing or wrong is said in one line, with its code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from skillstream_router.connect.selection import AgentSkill, select
from skillstream_schemas.card import AgentCard, SkillCard
from skillstream_schemas.errors import UnknownAgent, UnknownSkill

SEED = {"SKILLSTREAM_AGENTVERSE_SEED": "a seed that is long enough"}


def run(*arguments: str, env: dict[str, str] | None = None, without: str = "") -> tuple[int, str]:
    """Exit code and error text of a command; `without` is a package that is not installed for it."""
    code = f"""
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {without!r}:
            raise ModuleNotFoundError("blocked", name={without!r})
sys.meta_path.insert(0, Blocker())
sys.argv = ["skillstream", "connect", *sys.argv[1:]]
from skillstream.__main__ import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PATH": "/usr/bin:/bin", **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [(("hub", "ws://127.0.0.1:1"), "websockets", "router"), (("agentverse",), "uagents_core", "uagents")],
)
def test_a_missing_package_names_its_extra(command: tuple[str, ...], package: str, extra: str) -> None:
    code, text = run(*command, without=package)
    assert code == 2
    assert text.startswith(f"missing_extra: this connector needs {package} (pip install 'skillstream[{extra}]')")
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (("hub", "ws://127.0.0.1:1"), {}, "no key for the hub"),
        (("hub", "http://127.0.0.1:1"), {"SKILLSTREAM_HUB_KEY": "k"}, "ws://HOST"),
        (("hub", "ws://127.0.0.1:1", "--key-file", "/nowhere/key"), {}, "cannot be read"),
        (("agentverse",), {}, "seed"),
        (("agentverse", "--listen", "8001"), SEED, "HOST:PORT"),
        (("agentverse", "--peer", "agent1"), SEED, "ADDRESS=URL"),
        (("agentverse", "--endpoint", "https://x"), SEED, "SKILLSTREAM_AGENTVERSE_KEY"),
    ],
)
def test_a_wrong_use_is_said(arguments: tuple[str, ...], env: dict[str, str], words: str) -> None:
    code, text = run(*arguments, env=env)
    assert code == 2
    assert text.startswith("invalid_settings: ")
    assert words in text
    assert text.count("\n") == 1


def test_a_broker_that_is_away_is_said(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("the key\n")
    code, text = run("hub", "ws://127.0.0.1:1", "--key-file", str(key), "--redis", "redis://127.0.0.1:1")
    assert (code, text.partition(":")[0]) == (4, "broker_unavailable")


def test_which_agents_are_offered() -> None:
    def card(name: str, *skills: str) -> AgentCard:
        return AgentCard(name=name, queue=name, skills=tuple(SkillCard(name=skill) for skill in skills))

    cards = {"b": card("b", "one", "chat"), "a": card("a", "one", "two"), "empty": card("empty")}
    assert select(cards, []) == [AgentSkill("a", "one"), AgentSkill("b", "chat")]
    assert select(cards, ["a/two"]) == [AgentSkill("a", "two")]
    for wanted, error in ((["c"], UnknownAgent), (["a/three"], UnknownSkill), (["empty"], UnknownSkill)):
        with pytest.raises(error):
            select(cards, wanted)
    with pytest.raises(UnknownAgent):
        select({}, [])
