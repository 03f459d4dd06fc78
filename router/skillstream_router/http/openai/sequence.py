"""Sequence numbers of a response's events: `attempt · 2³² + 16 · seq` of the entry that an event comes from.

The submission and the final bring several events: theirs go on behind the entry's number, and so does an error, which no
entry brings. The next entry's number lies behind them all.
"""

from __future__ import annotations

from skillstream_router.http.gateway import Standing
from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.ids import START, EventId

_ATTEMPT = 1 << 32
_ENTRY = 1 << 4
"""Room for the five events of a final and for errors."""


def number_of(place: EventId) -> int:
    """The number of an entry."""
    return place.attempt * _ATTEMPT + place.seq * _ENTRY


def behind(number: int) -> int:
    """A number behind an event's and before the next entry's: who goes on behind it misses nothing."""
    return min(number + 1, number | (_ENTRY - 1))


def cursor_of(number: int, standing: Standing) -> EventId:
    """From where a stream is read on behind the event `number`: what is read again is left out by number.

    Raises InvalidRequest for a number that no event has yet.
    """
    top = standing.top
    if not 0 <= number <= number_of(top) + _ENTRY - 1:
        raise InvalidRequest(f"starting_after: no event has the number {number} yet")
    place = EventId(number // _ATTEMPT, number % _ATTEMPT // _ENTRY)
    if place.attempt == 0:
        return START
    # all events of the final are made from it: it is read again
    return min(place, EventId(top.attempt, top.seq - 1)) if standing.final is not None else place
