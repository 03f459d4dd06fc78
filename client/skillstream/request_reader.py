"""Requests from the first entries of streams; those of one kind differ in little, so that the rest is read once."""

from __future__ import annotations

from collections.abc import Sequence

from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.event import request_from_fields
from skillstream_schemas.ids import SUBMISSION, is_name
from skillstream_schemas.request import TaskRequest

_AT, _MESSAGE, _CONTEXT = 6, 12, 20
"""Where our own code writes these names; their values stand right behind them."""
_ANY_CONTEXT = b"c"
_KIND_BYTES = 1024
_KINDS = 1024
_kinds: dict[tuple[bytes, ...], TaskRequest] = {}
"""One request of each kind that came lately."""


def request_of(flat: Sequence[bytes]) -> TaskRequest:
    """The request in the fields of an entry 0-1, given as name, value, …; raises MalformedEntry."""
    return _known(flat) or _read(flat)


def fields_of(flat: Sequence[bytes]) -> dict[str, str]:
    """Fields of an entry as Redis lists them; raises MalformedEntry where they are not UTF-8."""
    try:
        parts = [part.decode() for part in flat]
    except UnicodeDecodeError as error:
        raise MalformedEntry(f"a field is not UTF-8: {error.reason} at byte {error.start}") from None
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _read(flat: Sequence[bytes]) -> TaskRequest:
    try:
        return request_from_fields(fields_of(flat))
    except MalformedEntry as error:
        raise MalformedEntry(f"entry {SUBMISSION}: {error.message}") from None


def _known(flat: Sequence[bytes]) -> TaskRequest | None:
    """A request made of one of its kind, with its own message and context; None where that is not plainly right."""
    if len(flat) < _CONTEXT or flat[_AT] != b"at" or flat[_MESSAGE] != b"message" or not flat[_AT + 1].isdigit():
        return None
    kind = list(flat)
    own = {}
    kind[_AT + 1] = kind[_MESSAGE + 1] = b""
    try:
        own["message"] = flat[_MESSAGE + 1].decode()
        if len(kind) > _CONTEXT and kind[_CONTEXT] == b"context_id":
            own["context_id"] = kind[_CONTEXT + 1].decode()
            if not is_name(own["context_id"]):
                return None
            kind[_CONTEXT + 1] = _ANY_CONTEXT
    except UnicodeDecodeError:
        return None
    one = _kinds.get(tuple(kind)) or _learn(tuple(kind))
    return None if one is None else one.model_copy(update=own)


def _learn(kind: tuple[bytes, ...]) -> TaskRequest | None:
    """Reads a request of a new kind, and keeps it unless requests would share what a skill can change or say a thing twice."""
    try:
        one = _read(kind)
    except MalformedEntry:
        return None
    if one.metadata is not None or one.data is not None or one.history is not None or len(set(kind[::2])) * 2 != len(kind):
        return None
    if sum(map(len, kind)) <= _KIND_BYTES:
        if len(_kinds) >= _KINDS:
            _kinds.clear()
        _kinds[kind] = one
    return one
