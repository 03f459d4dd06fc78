"""docs/traces.md lists every trace that is played, and every rule has one."""

from __future__ import annotations

import ast
from pathlib import Path

from docs.generate_traces import PAGE, page, traces


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "python -m docs.generate_traces writes it"


def test_every_rule_is_played() -> None:
    played = {rule for trace in traces() for rule in trace.rules}
    assert played == {f"P{number}" for number in range(1, 18)}


def test_every_test_on_a_stage_is_a_trace() -> None:
    named = {trace.test for trace in traces()}
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.AsyncFunctionDef) and any(argument.arg == "stage" for argument in node.args.args):
                assert node.name in named or not node.name.startswith("test_"), f"{node.name} does not say what it plays"
