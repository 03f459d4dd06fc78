"""Entries of task streams as Redis answers them."""

from __future__ import annotations

from collections.abc import Sequence

from skillstream_schemas.errors import InvalidName, MalformedEntry
from skillstream_schemas.event import FinalEvent, event_from_fields
from skillstream_schemas.ids import EventId

from .request_reader import fields_of
from .resp import Reply

Entry = tuple[EventId, dict[str, str]]
"""An entry of a task's stream: its id and its fields as text."""

_SHORT_ID = 15
"""Bytes of an id of which no number can be too large for an event's."""


def text_of(data: bytes, what: str = "entry") -> str:
    """Decodes UTF-8; raises MalformedEntry."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedEntry(f"{what} is not UTF-8: {error.reason} at byte {error.start}") from None


def id_of(raw: bytes) -> EventId:
    """The id of an entry as Redis writes it; raises MalformedEntry for one that no event has."""
    attempt, _, seq = raw.partition(b"-")
    if len(raw) <= _SHORT_ID and attempt.isdigit() and seq.isdigit():  # as good as all; without a regular expression
        return EventId(int(attempt), int(seq))
    try:
        return EventId.parse(raw.decode())
    except InvalidName as error:
        raise MalformedEntry(error.message) from None


def entry_of(raw: tuple[bytes, Sequence[bytes]]) -> Entry:
    """An entry as XRANGE answers it; raises MalformedEntry, which names it."""
    event_id = id_of(raw[0])
    try:
        return event_id, fields_of(raw[1])
    except MalformedEntry as error:
        raise MalformedEntry(f"entry {event_id}: {error.message}") from None


def entries_of(reply: Reply) -> list[Entry]:
    """Entries as XRANGE answers them; raises MalformedEntry, which names the entry."""
    return [entry_of(raw) for raw in reply or ()]


def final_of(raw_id: bytes, flat: Sequence[bytes]) -> FinalEvent:
    """The final in a script's answer."""
    event = event_from_fields(id_of(raw_id), fields_of(flat))
    if not isinstance(event, FinalEvent):
        raise MalformedEntry(f"entry {raw_id.decode()} is not a final")
    return event
