"""Events as JSON, the same for every face: what `skillstream tail --json` prints."""

from __future__ import annotations

from json.encoder import encode_basestring as quoted

from skillstream.entries import Entry
from skillstream_schemas.event import ResetEvent, event_from_fields

_TEXT_CHUNK = {"type", "text", "at"}


def event_json(item: Entry | ResetEvent) -> str:
    """One event as one line of JSON; raises MalformedEntry for an entry that is none.

    Text chunks, which are nearly all there is, are written straight from their fields: no model is made.
    """
    if isinstance(item, ResetEvent):
        return item.model_dump_json()
    event_id, fields = item
    if is_text_chunk(fields):
        return f'{{"id":"{event_id}","at":{int(fields["at"])},"type":"chunk","text":{quoted(fields["text"])}}}'
    return event_from_fields(event_id, fields).model_dump_json(exclude_none=True)


def is_text_chunk(fields: dict[str, str]) -> bool:
    """True for the fields of a whole, plain piece of text."""
    return fields.keys() == _TEXT_CHUNK and fields["type"] == "chunk" and fields["at"].isdecimal() and fields["at"].isascii()
