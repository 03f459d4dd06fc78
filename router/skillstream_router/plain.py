"""The short way from an entry to what its row needs, for entries as our own code writes them.

Whatever is not plainly right is left to the models of the contract, which say what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.ids import SUBMISSION, is_name
from skillstream_schemas.limits import MAX_LABEL_CHARS
from skillstream_schemas.request import MAX_DEADLINE_MS, WIRE_VERSION, OnRetry, read_json
from skillstream_schemas.state import FINAL_STATES, TaskState

_SUBMISSION = str(SUBMISSION)
_SUBMISSION_HEAD = (b"status", TaskState.SUBMITTED.value.encode(), WIRE_VERSION.encode())
_DIGITS, _ZERO = 15, ord("0")
_SHORT = 256
_SHAPES = 1024
_ATTEMPTS = 100
"""Fewer than the contract allows, as all limits here may be."""
_FINAL_STATES = {state.value.encode(): state for state in FINAL_STATES}
_ON_RETRY = frozenset(value.value.encode() for value in OnRetry)


class Asked(NamedTuple):
    """What the row of a task takes from its submission, in the order of `TaskRecord`."""

    agent: str
    skill: str
    submitted_at: int
    price_micros: int = 0
    context_id: str | None = None
    payer: str | None = None
    deadline: int | None = None


class Outcome(NamedTuple):
    """What the row of a task takes from its final, in the order of `TaskRecord`."""

    finished_at: int | None = None
    metadata: str | None = None
    usage: str | None = None
    error: str | None = None
    reason: str | None = None
    data: str | None = None


class _Shapes:
    """Responsible for values by name: our own code writes few sequences of names, in each of which a name has its place."""

    def __init__(self, *names: bytes, needed: Sequence[bytes]) -> None:
        self._names, self._needed = names, frozenset(needed)
        self._known: dict[tuple[bytes, ...], Callable[[Sequence[bytes | None]], tuple[Any, ...]]] = {}

    def values(self, flat: Sequence[bytes]) -> tuple[Any, ...] | None:
        """Values in the order of all names; None where a needed one is missing, or one is unknown or there twice."""
        names = tuple(flat[::2])
        pick = self._known.get(names) or self._learn(names)
        return None if pick is None else pick((*flat, None))

    def _learn(self, names: tuple[bytes, ...]) -> Callable[[Sequence[bytes | None]], tuple[Any, ...]] | None:
        places = {name: 2 * place + 1 for place, name in enumerate(names)}
        if len(places) != len(names) or not self._needed <= places.keys() <= set(self._names):
            return None
        if len(self._known) >= _SHAPES:
            self._known.clear()
        self._known[names] = itemgetter(*(places.get(name, -1) for name in self._names))
        return self._known[names]


_KIND, _OWN = 8, 13
_NO_OTHERS = (None,) * 4
_REQUESTS = _Shapes(
    *(b"type", b"state", b"v", b"agent", b"skill", b"price_micros", b"max_attempts", b"on_retry"),
    *(b"at", b"message", b"context_id", b"payer", b"deadline", b"follows", b"parent", b"sender_id", b"traceparent"),
    needed=(b"type", b"state", b"v", b"agent", b"skill", b"at", b"message"),
)
_FINALS = _Shapes(
    *(b"type", b"state", b"chunks", b"text", b"at", b"metadata", b"usage", b"error", b"reason"),
    needed=(b"type", b"state", b"chunks", b"text", b"at", b"metadata"),
)


def plain_request(entry_id: str, flat: Sequence[bytes]) -> tuple[Asked, str] | None:
    """What a plain submission asks for, and its message; None for anything else."""
    if entry_id != _SUBMISSION or (values := _REQUESTS.values(flat)) is None:
        return None
    at, message, context_id, payer, deadline = values[_KIND:_OWN]
    try:
        agent, skill, price_micros = _kind(values[:_KIND])
        if values[_OWN:] != _NO_OTHERS:
            _check_others(*values[_OWN:])
        asked = Asked(
            agent,
            skill,
            _time(at),
            price_micros,
            None if context_id is None else _name(context_id),
            None if payer is None else _label(payer),
            None if deadline is None else _deadline(deadline),
        )
        return asked, message.decode()
    except ValueError:
        return None


def plain_final(entry_id: str, flat: Sequence[bytes]) -> tuple[TaskState, Outcome, str] | None:
    """The end that a plain final tells, and its text; None for anything else."""
    if (values := _FINALS.values(flat)) is None:
        return None
    kind, state, chunks, text, at, metadata, usage, error, reason = values
    if kind != b"final" or state not in _FINAL_STATES:
        return None
    try:
        _event_id(entry_id)
        _integer(chunks)
        outcome = Outcome(
            _time(at),
            _object(metadata),
            None if usage is None else _object(usage),
            None if error is None else error.decode(),
            None if reason is None else reason.decode(),
        )
        return _FINAL_STATES[state], outcome, text.decode()
    except ValueError:
        return None


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


def _check_kind(kind: tuple[Any, ...]) -> tuple[str, str, int]:
    """Agent, skill and price of requests that differ in nothing but what each has of its own; the optional ones may be None."""
    agent, skill, price_micros, max_attempts, on_retry = kind[3:]
    if kind[:3] != _SUBMISSION_HEAD or (on_retry is not None and on_retry not in _ON_RETRY):
        raise ValueError("no plain submission")
    if max_attempts is not None and not 1 <= _time(max_attempts) < _ATTEMPTS:
        raise ValueError("no plain number of attempts")
    return _check_name(agent), _check_label(skill), 0 if price_micros is None else _time(price_micros)


def _check_others(follows: bytes | None, parent: bytes | None, sender_id: bytes | None, traceparent: bytes | None) -> None:
    """What has no place in the row."""
    for name in (follows, parent):
        if name is not None:
            _name(name)
    for label in (sender_id, traceparent):
        if label is not None:
            _check_label(label)


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


# mostly the same ones come again: kinds of requests, payers, the metadata of an agent's finals
_remember = lru_cache(maxsize=1024)
_kind = _remember(_check_kind)
_name = _remember(_check_name)
_label = _remember(_check_label)
_integer = _remember(_time)
_event_id = _remember(_check_event_id)
_short_object = _remember(_check_object)
