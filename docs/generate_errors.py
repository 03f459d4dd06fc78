"""Writes docs/errors.md from the error tree: `python -m docs.generate_errors`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path

from skillstream_schemas import errors, workflow_errors
from skillstream_schemas.errors import FailureCode, SkillstreamError

PAGE = Path(__file__).with_name("errors.md")
_MODULES = (errors.__name__, workflow_errors.__name__)
_HEAD = """# Errors

Written by `python -m docs.generate_errors` from the modules of errors in `schemas/skillstream_schemas`; a test holds
it to that. Codes are stable: one may be added, none changes its meaning or goes.

## What a call raises

All derive from `SkillstreamError`, have a `code`, and print as `code: what happened (what to do)`. The command line prints
that line and ends with 2 for a wrong use, 4 where broker or database cannot be reached, 1 for any other.

"""
_FAILURES = """
## Why a task failed

The field `error` of a final with `state=failed`; `reason` is a sentence of the case at hand.

"""
_ROUTER = """
Where a final itself cannot be read, the router records the task as failed with `malformed_entry` and charges nothing.
"""


def page() -> str:
    """The whole page."""
    raised = _table(("code", "class", "what happened", "what to do"), map(_error_row, _tree(SkillstreamError)))
    failed = _table(("code", "what happened", "what to do"), ((f"`{code}`", code.meaning, code.hint) for code in FailureCode))
    return _HEAD + raised + _FAILURES + failed + _ROUTER


def _tree(error: type[SkillstreamError]) -> Iterator[type[SkillstreamError]]:
    yield error
    for child in error.__subclasses__():
        if child.__module__ in _MODULES:
            yield from _tree(child)


def _error_row(error: type[SkillstreamError]) -> tuple[str, ...]:
    first_line = inspect.cleandoc(error.__doc__ or "").splitlines()[0]
    return f"`{error.code}`", f"`{error.__name__}`", first_line, error.hint


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page())
