"""Writes docs/errors.md from the error tree: `python -m docs.generate_errors`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import skillstream
import skillstream_schemas
from skillstream_schemas.errors import FailureCode, SkillstreamError

_FOLDER = Path(skillstream_schemas.__file__).parent
_MODULES = sorted(f"{skillstream_schemas.__name__}.{path.stem}" for path in _FOLDER.glob("*errors.py"))
PAGE = Path(__file__).with_name("errors.md")
_HEAD = """# Errors

Written by `python -m docs.generate_errors` from `errors.py` and the `…_errors.py` beside it in `schemas/skillstream_schemas`;
a test holds it to that.
Codes are stable: one may be added, none changes its meaning or goes.

## What a call raises

All derive from `SkillstreamError`, have a `code`, and print as `code: what happened (what to do)`. The command line prints
that line and ends with 2 for a wrong use, 4 where broker or database cannot be reached, 1 for any other.

Those that callers of `Client` meet are imported from there, `from skillstream import TextReset`: {exported}.
All others are in the modules named above.

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
    for module in _MODULES:
        import_module(module)
    raised = _table(("code", "class", "what happened", "what to do"), map(_error_row, _tree(SkillstreamError)))
    failed = _table(("code", "what happened", "what to do"), ((f"`{code}`", code.meaning, code.hint) for code in FailureCode))
    classes = ((name, getattr(skillstream, name)) for name in skillstream.__all__)
    exported = ", ".join(f"`{name}`" for name, found in classes if inspect.isclass(found) and issubclass(found, SkillstreamError))
    return _HEAD.format(exported=exported) + raised + _FAILURES + failed + _ROUTER


def _tree(error: type[SkillstreamError]) -> Iterator[type[SkillstreamError]]:
    yield error
    # in the order in which they are defined, whatever was imported first
    children = [child for child in error.__subclasses__() if child.__module__ in _MODULES]
    for child in sorted(children, key=lambda child: _MODULES.index(child.__module__)):
        yield from _tree(child)


def _error_row(error: type[SkillstreamError]) -> tuple[str, ...]:
    first_line = inspect.cleandoc(error.__doc__ or "").splitlines()[0]
    return f"`{error.code}`", f"`{error.__name__}`", first_line, error.hint


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page())
