"""How large and how deep a JSON text may be: checked before it is parsed, and before it is written for others to read."""

from __future__ import annotations

import re

from .limits import MAX_BYTES

MAX_JSON_DEPTH = 200
"""Levels of arrays and objects: what every parser on the way takes."""
MAX_JSON_NODES = 500_000
"""Arrays and objects in one text: an empty one is three characters there and seventy bytes in memory."""

# the closing quote may be missing: a search that fails there would begin again at each quote behind it
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NO_BRACKET = re.compile(r"[^][{}]+")


def check_json(text: str) -> None:
    """Raises ValueError for a JSON text that is too long, too deep, or has too many arrays and objects."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text)} characters, the limit is {MAX_BYTES}")
    if _opening_brackets(text) <= MAX_JSON_DEPTH:
        return
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text)).replace("{", "[").replace("}", "]")
    if (nodes := _opening_brackets(brackets)) > MAX_JSON_NODES:
        raise ValueError(f"{nodes} arrays and objects, the limit is {MAX_JSON_NODES}")
    for _ in range(MAX_JSON_DEPTH):
        outer = brackets.replace("[]", "")  # takes the innermost level away
        if len(outer) == len(brackets):
            break  # all gone, or no JSON at all: its parser says so
        brackets = outer
    else:
        if brackets:
            raise ValueError(f"more than {MAX_JSON_DEPTH} levels")


def _opening_brackets(text: str) -> int:
    return text.count("[") + text.count("{")
