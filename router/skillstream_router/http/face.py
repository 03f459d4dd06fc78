"""How a task's events are written as server-sent events: what each protocol has of its own, and our own form."""

from __future__ import annotations

import json
from typing import Protocol

from skillstream.entries import Entry
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.event import ResetEvent

from .event_json import event_json
from .failures import shown


class Face(Protocol):
    """One reader's view of one task: `opening` goes before the first event, `keep_alive` into silence."""

    opening: bytes
    keep_alive: bytes

    def told(self, item: Entry | ResetEvent) -> str:
        """What is written for an event, "" for nothing; raises the error with which the stream ends."""

    def failure(self, error: SkillstreamError) -> bytes:
        """What is written for an error that ends the stream."""

    def cut(self) -> bytes:
        """What is written where the gateway stops in the middle."""


class NativeFace:
    """Responsible for events with their ids, each one JSON object."""

    # neither has a blank line of its own: some clients hand that out as an event without data
    opening = b"retry: 1000\n"
    keep_alive = b": keep-alive\n"

    def told(self, item: Entry | ResetEvent) -> str:
        """An event with its cursor; raises MalformedEntry for an entry that is none."""
        # a reset has no id: whoever is cut behind it comes back before the opening, and hears it again
        place = "" if isinstance(item, ResetEvent) else f"id: {item[0]}\n"
        return f"{place}data: {event_json(item)}\n\n"

    def failure(self, error: SkillstreamError) -> bytes:
        """A last event, without a cursor."""
        told = json.dumps({"type": "error", "error": shown(error)}, ensure_ascii=False)
        return f"data: {told}\n\n".encode()

    def cut(self) -> bytes:
        """Nothing: the reader comes back with its cursor."""
        return b""
