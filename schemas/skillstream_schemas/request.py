"""What a service asks for: the content of a stream's first entry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from math import isfinite
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, ValidationInfo, field_validator

from .errors import InvalidName, InvalidRequest, MalformedEntry, MessageTooLarge
from .ids import check_name
from .json_text import check_json, json_text
from .limits import DEFAULT_ATTEMPTS, MAX_FIELDS, MAX_LABEL_CHARS, MOST_ATTEMPTS, Limits, utf8_length
from .money import MAX_MICROS

WIRE_VERSION = "1"
MAX_DEADLINE_MS = 253_402_300_799_999
"""The last moment of the year 9999 in UTC (unix ms): Python knows no later one."""
_PLACE = 4
"""Parts of a place inside nested values that an error names."""
_DESCRIPTION = 500
"""Characters of an error's text: it may end up in a final event."""


class OnRetry(StrEnum):
    """What a newer attempt does with what an older one said."""

    RESTART = "restart"
    RESUME = "resume"
    FAIL = "fail"


class HistoryMessage(BaseModel):
    """One turn of a conversation; `task_id` names the task that it belongs to, where known."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["user", "agent"]
    text: str
    task_id: str | None = None


class TaskRequest(BaseModel):
    """A request to run one skill of an agent on one message.

    `max_attempts`, `price_micros` and `on_retry` are copied from the agent's card at submission.
    `deadline` is unix ms. `follows` names the task of the turn before, `parent` the task that delegated
    this one. `history` replaces the stored history of the context.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    agent: str
    skill: str = Field(min_length=1, max_length=MAX_LABEL_CHARS)
    message: str
    max_attempts: int = Field(default=DEFAULT_ATTEMPTS, ge=1, le=MOST_ATTEMPTS)
    price_micros: int = Field(default=0, ge=0, le=MAX_MICROS)
    on_retry: OnRetry = OnRetry.RESTART
    context_id: str | None = None
    follows: str | None = None
    payer: str | None = Field(default=None, min_length=1, max_length=MAX_LABEL_CHARS)
    sender_id: str | None = Field(default=None, min_length=1, max_length=MAX_LABEL_CHARS)
    parent: str | None = None
    admission: str | None = Field(default=None, max_length=MAX_LABEL_CHARS)
    deadline: int | None = Field(default=None, ge=0, le=MAX_DEADLINE_MS)
    metadata: dict[str, JsonValue] | None = None
    history: tuple[HistoryMessage, ...] | None = Field(default=None, fail_fast=True)
    traceparent: str | None = Field(default=None, max_length=MAX_LABEL_CHARS)
    data: JsonValue = None

    @field_validator("agent", "context_id", "follows", "parent")
    @classmethod
    def _names(cls, value: str | None, info: ValidationInfo) -> str | None:
        return value if value is None else check_name(value, str(info.field_name))

    @classmethod
    def build(cls, fields: Mapping[str, Any], limits: Limits) -> Self:
        """Makes a request from native values and checks its limits; raises InvalidRequest or MessageTooLarge."""
        if len(fields) > MAX_FIELDS:
            raise InvalidRequest(f"{len(fields)} fields, the limit is {MAX_FIELDS}")
        try:
            request = cls.model_validate(fields)
        except ValidationError as error:
            raise InvalidRequest(describe(error)) from None
        request.check_limits(limits)
        return request

    def check_limits(self, limits: Limits) -> None:
        """Raises MessageTooLarge if the message, metadata, history or data is over the limit in UTF-8 bytes.

        Raises InvalidRequest for what cannot be written: lone surrogates, NaN, integers of thousands of digits.
        """
        try:
            nested = {name: compact_json(value) for name, value in self._nested() if value is not None}
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"metadata or data cannot be written as JSON: {error}") from None
        for name in _LABELS:
            _size_bytes(name, getattr(self, name) or "")
        for name, text in (("message", self.message), *nested.items()):
            size_bytes = _size_bytes(name, text)
            if size_bytes > limits.message_bytes:
                raise MessageTooLarge(f"{name} has {size_bytes} bytes, the limit is {limits.message_bytes}")

    def _nested(self) -> tuple[tuple[str, Any], ...]:
        history = None
        if self.history is not None:
            history = [turn.model_dump(exclude_none=True) for turn in self.history]
        return ("metadata", self.metadata), ("history", history), ("data", self.data)

    def to_fields(self) -> dict[str, str]:
        """The fields of this request on a stream: texts as they are, nested values as JSON, absent ones left out."""
        fields = {"agent": self.agent, "skill": self.skill, "message": self.message}
        fields["max_attempts"] = str(self.max_attempts)
        fields["price_micros"] = str(self.price_micros)
        fields["on_retry"] = str(self.on_retry)
        for name in _PLAIN:
            value = getattr(self, name)
            if value is not None:
                fields[name] = str(value)
        for name, value in self._nested():
            if value is not None:
                fields[name] = compact_json(value)
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, str]) -> Self:
        """Reads a request back from the fields of a stream entry.

        Raises MalformedEntry for a missing, unknown or unreadable field.
        """
        if len(fields) > MAX_FIELDS:
            raise MalformedEntry(f"{len(fields)} fields, the limit is {MAX_FIELDS}")
        values: dict[str, Any] = dict(fields)
        try:
            for name in _JSON & values.keys():
                values[name] = read_json(name, values[name])
            return cls.model_validate(values)
        except ValidationError as error:
            raise MalformedEntry(describe(error)) from None
        except InvalidName as error:
            raise MalformedEntry(error.message) from None

    def same_order(self, other: TaskRequest) -> bool:
        """True if both ask for the same thing: all but what the card or the clock put in is equal."""
        return not self.differing(other)

    def differing(self, other: TaskRequest) -> list[str]:
        """The fields in which two orders differ; what the card or the clock put in is no matter."""
        mine, others = self.model_dump(exclude=_NOT_ASKED), other.model_dump(exclude=_NOT_ASKED)
        return [name for name, value in mine.items() if value != others[name]]


_PLAIN = ("context_id", "follows", "payer", "sender_id", "parent", "admission", "deadline", "traceparent")
_LABELS = ("skill", "payer", "sender_id", "admission", "traceparent")
_JSON = frozenset({"metadata", "history", "data"})
_NOT_ASKED = {"max_attempts", "price_micros", "on_retry", "deadline", "traceparent"}


def _size_bytes(name: str, text: str) -> int:
    try:
        return utf8_length(text)
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name} is not valid Unicode text: it holds a lone surrogate") from None


def compact_json(value: Any) -> str:
    """JSON without spaces, with real characters instead of escapes.

    Raises ValueError for NaN and infinities, and for what readers would refuse as too deep or too large.
    """
    text = json_text(value)
    check_json(text)
    return text


def read_json(name: str, text: str) -> Any:
    """Reads the JSON of the field `name`.

    Raises MalformedEntry, also for NaN, infinities and lone surrogates, and before parsing for what is too deep or too large.
    """
    try:
        check_json(text)
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        if "\\u" in text:
            compact_json(value).encode()
    except (ValueError, RecursionError) as error:
        raise MalformedEntry(f"{name}: not JSON: {error}"[:_DESCRIPTION]) from None
    return value


def _finite(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is no finite number")
    return value


def describe(error: ValidationError) -> str:
    """The problems that pydantic found, one line, with no input values (they may be private or huge)."""
    found = (
        f"{'.'.join(map(str, e['loc'][:_PLACE])) or 'value'}: {e['msg'].removeprefix('Value error, ')}"
        for e in error.errors(include_input=False, include_url=False)
    )
    return "; ".join(found)[:_DESCRIPTION]
