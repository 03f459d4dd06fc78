"""JSON as text: how it is written here, and how large and how deep it may be, which is checked before it is parsed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .limits import MAX_BYTES

MAX_JSON_DEPTH = 200
"""Levels of arrays and objects: what every parser on the way takes."""
MAX_JSON_NODES = 500_000
"""Arrays and objects in one text: an empty one is three characters there and seventy bytes in memory."""

MAX_JSON_VALUES = 200_000
"""Elements and members in one text of a caller's: four million small ones fit into 8 MiB, and take most of a second."""

_KEPT = b'[]{}"'
_DELETED = bytes(byte for byte in range(256) if byte not in _KEPT)
_ALIKE = bytes.maketrans(b"{}", b"[]")
# made once: json.dumps makes an encoder at each call that asks for anything but its defaults
json_text: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
"""JSON of any size without spaces, with real characters instead of escapes; raises ValueError for NaN and infinities."""


def check_json(text: str) -> None:
    """Raises ValueError for a JSON text that is too long, too deep, or has too many arrays and objects."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text)} characters, the limit is {MAX_BYTES}")
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return
    brackets = _brackets(text)
    if len(brackets) > 2 * MAX_JSON_NODES:
        raise ValueError(f"over the limit of {MAX_JSON_NODES} arrays and objects")
    for _ in range(MAX_JSON_DEPTH):
        outer = brackets.replace(b"[]", b"")  # takes the innermost level away
        if len(outer) == len(brackets):
            return  # all gone, or no JSON at all: its parser says so
        brackets = outer
    if brackets:
        raise ValueError(f"more than {MAX_JSON_DEPTH} levels")


def check_values(text: str) -> None:
    """Raises ValueError for a JSON text with too many elements and members: who parses it for others has little time."""
    if text.count(",") <= MAX_JSON_VALUES:
        return
    bare = _without_escapes(text)
    # a member has four quotes at most
    if bare.count('"') > 4 * MAX_JSON_VALUES or sum(part.count(",") for part in bare.split('"')[::2]) > MAX_JSON_VALUES:
        raise ValueError(f"over the limit of {MAX_JSON_VALUES} values")


def _without_escapes(text: str) -> str:
    """The text without escaped backslashes and quotes: each quote that is left begins or ends a string."""
    return text.replace("\\\\", "").replace('\\"', "")


def _brackets(text: str) -> bytes:
    """The brackets outside of strings, all as square ones; by whole-text operations alone, which cost little memory."""
    kept = _without_escapes(text).encode(errors="replace").translate(_ALIKE, _DELETED)
    kept = kept.replace(b'""', b"")  # strings without brackets
    if kept.count(b'"') > 2 * MAX_JSON_NODES:
        raise ValueError(f"more than {MAX_JSON_NODES} strings with brackets")
    return b"".join(kept.split(b'"')[::2])
