"""docs/errors.md lists every code with what it means, and is what the error tree says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate_errors import PAGE, page
from skillstream_schemas.errors import FailureCode, SkillstreamError


def classes(base: type[SkillstreamError]) -> list[type[SkillstreamError]]:
    return [
        base,
        *(found for child in base.__subclasses__() if child.__module__.startswith("skillstream") for found in classes(child)),
    ]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "python -m docs.generate_errors writes it"


def test_every_error_of_every_package_stands_on_it_with_what_to_do() -> None:
    text = PAGE.read_text()
    for error in classes(SkillstreamError):
        assert f"| `{error.code}` | `{error.__name__}` |" in text
        assert error.hint or error is SkillstreamError


@pytest.mark.parametrize("code", FailureCode)
def test_every_failure_code_says_what_it_means_and_what_to_do(code: FailureCode) -> None:
    assert code.meaning.endswith(".")
    assert code.hint
    assert not code.hint.endswith(".")
    assert FailureCode(code.value) is code
    assert f"| `{code}` | {code.meaning} | {code.hint} |" in PAGE.read_text()


def test_the_documentation_names_no_other_code() -> None:
    """Codes in docs/wire-format.md are those of this page."""
    known = {error.code for error in classes(SkillstreamError)} | set(map(str, FailureCode))
    listed = Path(PAGE.parent / "wire-format.md").read_text()
    line = next(text for text in listed.split("\n\n") if "`attempts_exhausted` ·" in text)
    named = {word for word in line.replace("\n", " ").split("`")[1::2] if "_" in word and word.islower() and " " not in word}
    assert {"skill_error", "unknown_skill"} <= named
    assert {code for code in named if "." not in code and "/" not in code} <= known
