"""Guarantees and tests, tied at both ends: none without a test that names it, no name of one that does not exist."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
GUARANTEES: list[dict[str, Any]] = tomllib.loads((TESTS / "guarantees.toml").read_text())["guarantee"]
LATER = {guarantee["id"] for guarantee in GUARANTEES if guarantee.get("later", False)}
PROMISED = {guarantee["id"] for guarantee in GUARANTEES}


def markers(path: Path) -> list[tuple[str, str]]:
    """Each id that a marker of this file names, with the place; the file is parsed, not imported."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.guarantee":
            place = f"{path.relative_to(TESTS)}:{node.lineno}"
            found += [(ast.literal_eval(argument), place) for argument in node.args]
    return found


CLAIMS = [claim for path in sorted(TESTS.rglob("*.py")) for claim in markers(path)]


def test_the_list_is_whole() -> None:
    assert [guarantee["id"] for guarantee in GUARANTEES] == [f"G{number}" for number in range(1, 17)]
    assert all(len(guarantee["sentence"]) > 20 for guarantee in GUARANTEES)
    assert all(set(guarantee) <= {"id", "sentence", "later"} for guarantee in GUARANTEES)


@pytest.mark.parametrize("guarantee", sorted(PROMISED - LATER, key=lambda name: int(str(name)[1:])))
def test_a_guarantee_is_named_by_a_test(guarantee: str) -> None:
    assert [place for name, place in CLAIMS if name == guarantee], f"no test proves {guarantee}"


def test_every_marker_names_a_guarantee_that_is_proven_now() -> None:
    unknown = [f"{place} names {name}" for name, place in CLAIMS if name not in PROMISED]
    assert not unknown
    early = [f"{place} names {name}, which is marked later" for name, place in CLAIMS if name in LATER]
    assert not early


def test_a_marker_is_seen_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TESTS", tmp_path)
    path = tmp_path / "test_any.py"
    name = "pytest.mark.guarantee"
    path.write_text(
        f"pytestmark = {name}('G1')\n@{name}('G2', 'G3')\ndef test(): ...\nclass T:\n    @{name}('G4')\n    def test(self): ...\n"
    )
    assert sorted(found for found, _ in markers(path)) == ["G1", "G2", "G3", "G4"]
