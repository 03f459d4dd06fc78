"""What one reader of a stream waits for: entries that were read for it and not fetched yet."""

from __future__ import annotations

import asyncio
from typing import Protocol

from skillstream_schemas.errors import BrokerUnavailable, MalformedEntry
from skillstream_schemas.ids import EventId
from skillstream_schemas.limits import KIB

from .entries import Entry, entry_of
from .resp import Reply, ReplyError, blob, pack_around

BATCH = 32
"""Entries read of one stream at once: 2 MiB at most where each is as large as it may be (64 KiB), but for request and final."""
_ROOM_BYTES = 256 * KIB
"""A reader that has not fetched so much is read for no further."""
_MOST_WAITING = 200
_FALLBACK_REPORT = 50


class Hub(Protocol):
    """Who reads for feeds."""

    @property
    def is_tracking(self) -> bool:
        """True while the broker tells what changed."""

    def follow(self, feed: Feed) -> None:
        """Reads for a feed from now on."""

    def want(self, feed: Feed) -> None:
        """Has a feed read again."""

    def drop(self, feed: Feed) -> None:
        """Forgets a feed."""


class Feed:
    """Responsible for the entries of one stream that wait for one reader.

    `reconnected` counts how often the connection broke under it: the reader then checks that the broker did
    not go back (rule P15).
    """

    def __init__(self, hub: Hub, key: str, after: EventId, last_only: bool) -> None:
        self.key = key
        self.cursor = after
        if last_only:
            self._head, self._tail = pack_around(("XREVRANGE", key, "+"), ("COUNT", 1))
        else:
            self._head, self._tail = pack_around(("XRANGE", key), ("+", "COUNT", BATCH))
        self.reconnected = 0
        self._hub = hub
        self._entries: list[Entry] = []
        self._waiting_bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._asked = after
        self._empty_reads = 0
        self._report_empty = False

    @property
    def is_ready(self) -> bool:
        """True where `take` has something to say."""
        return bool(self._entries) or self._report_empty or self._error is not None

    def changed(self) -> asyncio.Future[None]:
        """Done once the feed may be ready. A future and no coroutine, since one is awaited for each event of each reader."""
        self._waiting = asyncio.get_running_loop().create_future()
        return self._waiting

    def take(self) -> list[Entry] | None:
        """All entries of a feed that is ready; None where a read found nothing new, to look at the stream's ends.

        Raises BrokerUnavailable once the broker stayed away for its patience, MalformedEntry for an unreadable entry.
        """
        if self._entries:
            had_room = self.has_room
            taken, self._entries, self._waiting_bytes = self._entries, [], 0
            if not had_room:
                self._hub.want(self)
            return taken
        if self._error is not None:
            raise self._error
        self._report_empty = False
        return None

    async def next(self) -> list[Entry] | None:
        """Waits until the feed is ready, then as `take`."""
        while not self.is_ready:
            await self.changed()
        return self.take()

    def close(self) -> None:
        """Ends the feed; twice is safe."""
        self._hub.drop(self)

    def move(self, hub: Hub) -> None:
        """Goes on at another hub; the reader checks that the stream did not go back on its way (rule P15)."""
        self._hub.drop(self)
        self._hub = hub
        self.reconnected += 1
        hub.follow(self)

    @property
    def has_room(self) -> bool:
        """False while enough waits for the reader, in entries or in bytes."""
        return len(self._entries) < _MOST_WAITING and self._waiting_bytes < _ROOM_BYTES

    def command(self) -> bytes:
        """The read, packed, that brings what this feed lacks."""
        self._asked = self.cursor
        return self._head + blob(b"(%d-%d" % self.cursor) + self._tail

    def deliver(self, reply: Reply) -> bool:
        """Takes the answer to `command`; True if there may be more."""
        if self._error is not None:
            return False
        if self._asked != self.cursor:  # the reader went back while this answer was under way
            return True
        if isinstance(reply, ReplyError):
            self.fail(BrokerUnavailable(f"following: {reply}"))
            return False
        try:
            for raw in reply:  # one by one: what stands before an unreadable entry is still handed on
                self._entries.append(entry_of(raw))
                self._waiting_bytes += sum(map(len, raw[1]))
        except MalformedEntry as error:
            self.fail(error)
            return False
        if reply:
            self.cursor = self._entries[-1][0]
        else:
            self._empty_reads += 1
            self._report_empty |= self._hub.is_tracking or self._empty_reads % _FALLBACK_REPORT == 1
        self._tell()
        return len(reply) == BATCH

    def rewind(self, cursor: EventId) -> None:
        """Goes back to an earlier place; what waits is dropped and read again."""
        self._entries.clear()
        self._waiting_bytes = 0
        if isinstance(self._error, MalformedEntry):
            self._error = None
        self.cursor = cursor
        self._report_empty = False
        self._hub.want(self)

    def fail(self, error: Exception) -> None:
        """Ends the feed with an error behind what waits."""
        self._error = error
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
