"""Sequence numbers of a response's events: `attempt · 2³² + seq` of the entry that an event comes from.

The submission and the final bring several events. Theirs go on behind the entry's number: nothing else stands there,
since attempt 0 is the submission alone and nothing follows a final.
"""

from __future__ import annotations

from skillstream_router.http.gateway import Standing
from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.ids import START, SUBMISSION, EventId

_ATTEMPT = 1 << 32
OPENING_EVENTS = 4
FINAL_EVENTS = 5


def number_of(place: EventId) -> int:
    """The number of an entry."""
    return place.attempt * _ATTEMPT + place.seq


def cursor_of(number: int, standing: Standing) -> EventId:
    """From where a stream is read on behind the event `number`: what is read again is left out by number.

    Raises InvalidRequest for a number that no event has yet.
    """
    top = standing.top
    last = number_of(top) + (FINAL_EVENTS - 1 if standing.final is not None else 0)
    if not 0 <= number <= max(last, number_of(SUBMISSION) + OPENING_EVENTS - 1):
        raise InvalidRequest(f"starting_after: no event has the number {number} yet")
    place = EventId(*divmod(number, _ATTEMPT))
    if place.attempt == 0:
        return START
    # all events of the final are made from it: it is read again
    return min(place, EventId(top.attempt, top.seq - 1)) if standing.final is not None else place
