"""The short way from an entry to what its row needs, for entries as our own code writes them.

Whatever is not plainly right is left to the models of the contract, which say what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.ids import SUBMISSION, is_name
from skillstream_schemas.limits import MAX_LABEL_CHARS
from skillstream_schemas.request import MAX_DEADLINE_MS, WIRE_VERSION, OnRetry, read_json
from skillstream_schemas.state import FINAL_STATES, TaskState

_SUBMISSION = str(SUBMISSION)
_SUBMISSION_HEAD = ((b"type", b"status"), (b"state", TaskState.SUBMITTED.value.encode()), (b"v", WIRE_VERSION.encode()))
_DIGITS, _ZERO = 15, ord("0")
_SHORT = 256
_ATTEMPTS = 100
"""Fewer than the contract allows, as all limits here may be."""
_FINAL_STATES = {state.value.encode(): state for state in FINAL_STATES}
_ON_RETRY = frozenset(value.value.encode() for value in OnRetry)


class Asked(NamedTuple):
    """What the row of a task takes from its request, under the names of `TaskRequest`."""

    agent: str
    skill: str
    message: str
    price_micros: int
    context_id: str | None
    payer: str | None
    deadline: int | None


class Outcome(NamedTuple):
    """What the row of a task takes from its final; `problem` says why that could not be read."""

    state: TaskState
    text: str
    finished_at: int | None
    metadata: str | None = None
    usage: str | None = None
    error: str | None = None
    reason: str | None = None
    data: str | None = None
    problem: str | None = None


def plain_request(entry_id: str, fields: Mapping[bytes, bytes]) -> Asked | None:
    """The request of a plain submission, None for anything else."""
    if entry_id != _SUBMISSION:
        return None
    known = len(_SUBMISSION_HEAD) + 4
    try:
        for name, value in _SUBMISSION_HEAD:
            if fields[name] != value:
                return None
        agent, skill, message = _name(fields[b"agent"]), _label(fields[b"skill"]), fields[b"message"].decode()
        _time(fields[b"at"])
        found: list[Any] = []
        for name, read in _OPTIONAL:
            if (raw := fields.get(name)) is None:
                found.append(None)
            else:
                found.append(read(raw))
                known += 1
    except (KeyError, ValueError):
        return None
    price_micros, context_id, payer, deadline, *_ = found
    return Asked(agent, skill, message, price_micros or 0, context_id, payer, deadline) if known == len(fields) else None


def plain_final(entry_id: str, fields: Mapping[bytes, bytes]) -> Outcome | None:
    """The end that a plain final tells, None for anything else."""
    known = 6
    try:
        _event_id(entry_id)
        _integer(fields[b"chunks"])
        state, at = _FINAL_STATES[fields[b"state"]], _time(fields[b"at"])
        text, metadata = fields[b"text"].decode(), _object(fields[b"metadata"])
        if fields[b"type"] != b"final":
            return None
        found: list[str | None] = []
        for name, read in _OPTIONAL_IN_FINALS:
            if (raw := fields.get(name)) is None:
                found.append(None)
            else:
                found.append(read(raw))
                known += 1
    except (KeyError, ValueError):
        return None
    return Outcome(state, text, at, metadata, *found) if known == len(fields) else None


def _time(raw: bytes) -> int:
    """A number as we write it; raises ValueError for every other way of writing one."""
    if not raw.isdigit() or len(raw) > _DIGITS or (raw[0] == _ZERO and len(raw) > 1):
        raise ValueError("no plain number")
    return int(raw)


def _deadline(raw: bytes) -> int:
    if (at := _time(raw)) > MAX_DEADLINE_MS:
        raise ValueError("no moment")
    return at


def _check_name(raw: bytes) -> str:
    text = raw.decode()
    if not is_name(text):
        raise ValueError("no name")
    return text


def _check_label(raw: bytes) -> str:
    text = raw.decode()
    if not 0 < len(text) <= MAX_LABEL_CHARS:
        raise ValueError("no label")
    return text


def _check_attempts(raw: bytes) -> None:
    if not 1 <= _integer(raw) < _ATTEMPTS:
        raise ValueError("no plain number of attempts")


def _check_on_retry(raw: bytes) -> None:
    if raw not in _ON_RETRY:
        raise ValueError("no way to retry")


def _check_event_id(entry_id: str) -> None:
    if entry_id == _SUBMISSION:
        raise ValueError("no place of a final")
    for part in entry_id.encode().split(b"-"):
        _time(part)


def _object(raw: bytes) -> str:
    return _short_object(raw) if len(raw) <= _SHORT else _check_object(raw)


def _check_object(raw: bytes) -> str:
    text = raw.decode()
    try:
        if isinstance(read_json("an object", text), dict):
            return text
    except MalformedEntry:
        pass
    raise ValueError("no object")


# mostly the same ones come again: agents, skills, payers, prices, the metadata of an agent's finals
_remember = lru_cache(maxsize=1024)
_name = _remember(_check_name)
_label = _remember(_check_label)
_integer = _remember(_time)
_event_id = _remember(_check_event_id)
_short_object = _remember(_check_object)
_OPTIONAL: tuple[tuple[bytes, Callable[[bytes], Any]], ...] = (
    (b"price_micros", _integer),
    (b"context_id", _name),
    (b"payer", _label),
    (b"deadline", _deadline),
    (b"max_attempts", _check_attempts),
    (b"on_retry", _check_on_retry),
    (b"follows", _name),
    (b"parent", _name),
    (b"sender_id", _label),
    (b"traceparent", _check_label),
)
_OPTIONAL_IN_FINALS: tuple[tuple[bytes, Callable[[bytes], str]], ...] = (
    (b"usage", _object),
    (b"error", bytes.decode),
    (b"reason", bytes.decode),
)
