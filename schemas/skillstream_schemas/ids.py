"""Names that become part of keys, task ids, and event ids."""

from __future__ import annotations

import os
import re
import time
from typing import Any, NamedTuple, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from .errors import InvalidName

_NAME = re.compile(r"(?!\.+\Z)[A-Za-z0-9._-]{1,128}\Z")
_EVENT_ID = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?\Z")


def is_name(text: str) -> bool:
    """True if `text` may stand in a key and in a URL: 1 to 128 characters of `A-Za-z0-9._-`, and not dots alone."""
    return _NAME.match(text) is not None


def check_name(text: str, what: str) -> str:
    """Returns `text` if it may stand in a key; raises InvalidName, which calls it `what`, otherwise."""
    if not isinstance(text, str):
        raise InvalidName(f"{what} is {type(text).__name__}, not a text")
    if not is_name(text):
        raise InvalidName(f"{what} {text[:140]!r} cannot be used")
    return text


_drawn: list[bytes] = []
os.register_at_fork(after_in_child=_drawn.clear)  # parent and child never give out the same


def new_task_id() -> str:
    """A new UUIDv7: sortable by time of creation (RFC 9562, section 5.7)."""
    # written out, since uuid.UUID takes several times longer
    unix_ms = time.time_ns() // 1_000_000
    if not _drawn:
        # a system call an id would take longer than all the rest
        drawn_bytes = os.urandom(10 * 64)
        _drawn.extend(drawn_bytes[start : start + 10] for start in range(0, len(drawn_bytes), 10))
    drawn = int.from_bytes(_drawn.pop(), "big") & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62
    text = f"{unix_ms << 80 | drawn:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class EventId(NamedTuple):
    """The id of a stream entry, `<attempt>-<seq>`: order, cursor and fence in one.

    Attempt 0 is the time before any worker; `EventId(0, 0)` is the place before the first entry.
    """

    attempt: int
    seq: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads `"1-2"`, or `"0"` for the place before everything; raises InvalidName."""
        found = _EVENT_ID.match(text)
        if found is None:
            raise InvalidName(
                f"{text[:40]!r} is not an event id", hint="such as 1-2, the second entry of attempt 1; 0 is the beginning"
            )
        return cls(int(found[1]), int(found[2] or 0))

    @property
    def is_opening(self) -> bool:
        """True for the first entry of an attempt by a worker."""
        return self.seq == 1 and self.attempt > 0

    def is_followed_by(self, other: EventId) -> bool:
        """True if nothing is missing between this entry and `other`."""
        if other.attempt == self.attempt:
            return other.seq == self.seq + 1
        return other.attempt > self.attempt and other.seq == 1

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls.parse(str(value)),
            serialization=core_schema.plain_serializer_function_ser_schema(str, return_schema=core_schema.str_schema()),
        )


START = EventId(0, 0)
"""The place before the first entry of every stream."""

SUBMISSION = EventId(0, 1)
"""The id of the entry that holds the request."""
