"""What the documentation shows, for tests that run its code and hold its tables to ours."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str = "python") -> list[str]:
    """All blocks of code on a page."""
    return re.findall(rf"```{language}\n(.*?)```", (_ROOT / page).read_text(), re.DOTALL)


def block(page: str, words: str, language: str = "python") -> str:
    """The block of code on a page that holds these words."""
    return next(text for text in blocks(page, language) if words in text)


def table(page: str, head: str, number: int = 0) -> list[list[str]]:
    """The rows of a table on a page, without its head, whose first cell is `head`; `number` tells several of them apart."""
    tables = re.findall(r"(?:^\|.*\n)+", (_ROOT / page).read_text(), re.MULTILINE)
    found = [text.splitlines() for text in tables if text.startswith(f"| {head} |")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found[number][2:]]


def code(cell: str) -> list[str]:
    """What a cell shows as code."""
    return re.findall(r"`([^`]+)`", cell)


def names(rows: list[list[str]]) -> list[str]:
    """What the first cells of a table are about: the code in them, without how it is called."""
    shown = [text for row in rows for text in code(row[0])]
    return [found[1] for text in shown if (found := re.match(r"(?:await |async for \w+ in )?([a-z_]\w*)", text))]


def called(function: Callable[..., Any]) -> str:
    """How a function is called, as the pages write it: names and defaults, no types."""
    parameters = [parameter for name, parameter in inspect.signature(function).parameters.items() if name != "self"]
    shown = (
        ("**" if parameter.kind is parameter.VAR_KEYWORD else "")
        + parameter.name
        + ("" if parameter.default is parameter.empty else f"={value(parameter)}")
        for parameter in parameters
    )
    return f"{function.__name__}({', '.join(shown)})"


def value(parameter: inspect.Parameter) -> str:
    """A parameter's default as the pages write it; `needed` where it has none."""
    default = parameter.default
    if default is parameter.empty:
        return "needed"
    return json.dumps(str(default)) if isinstance(default, str) else repr(default)
