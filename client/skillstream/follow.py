"""Following streams: one connection for all followers of a process, told by the broker what changed.

The connection asks for CLIENT TRACKING (RESP3): a stream that was read and gets a new entry brings one
invalidation; what is stale is read again in one batch. Where the broker refuses tracking, all streams are read
each `FALLBACK_PAUSE_S` instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from skillstream_schemas.errors import BrokerUnavailable, MalformedEntry
from skillstream_schemas.ids import EventId
from skillstream_schemas.settings import Settings

from .broker import Entry, entries_of
from .connection import Connection, connect
from .pipeline import RETRY_KINDS
from .resp import Argument, Reply, ReplyError, pack

log = logging.getLogger(__name__)

BATCH = 200
"""Entries read of one stream at once; a reader that does not fetch them holds no more than twice as many."""
FALLBACK_PAUSE_S = 0.02
_FALLBACK_REPORT = 50
_LONGEST_PAUSE_S = 1.0


class Feed:
    """Responsible for the entries of one stream that wait for one reader.

    `reconnected` counts how often the connection broke under it: the reader then checks that the broker did
    not go back (rule P15).
    """

    def __init__(self, hub: FollowHub, key: str, after: EventId, last_only: bool) -> None:
        self.key = key
        self.cursor = after
        self.last_only = last_only
        self.reconnected = 0
        self._hub = hub
        self._entries: deque[Entry] = deque()
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._asked = after
        self._empty_reads = 0
        self._report_empty = False

    async def next(self) -> Entry | None:
        """The next entry; None after a read that found nothing new, so that the reader may look at the stream's ends.

        Raises BrokerUnavailable once the broker stayed away for its patience, MalformedEntry for an unreadable entry.
        """
        while not self._entries:
            if self._error is not None:
                raise self._error
            if self._report_empty:
                self._report_empty = False
                return None
            self._changed.clear()
            await self._changed.wait()
        entry = self._entries.popleft()
        if len(self._entries) == BATCH // 2:
            self._hub.want(self)
        return entry

    def close(self) -> None:
        """Ends the feed; twice is safe."""
        self._hub.drop(self)

    @property
    def has_room(self) -> bool:
        """False while the reader has a batch waiting."""
        return len(self._entries) < BATCH

    def command(self) -> tuple[Argument, ...]:
        """The read that brings what this feed lacks."""
        self._asked = self.cursor
        if self.last_only:
            return ("XREVRANGE", self.key, "+", f"({self.cursor}", "COUNT", 1)
        return ("XRANGE", self.key, f"({self.cursor}", "+", "COUNT", BATCH)

    def deliver(self, reply: Reply) -> bool:
        """Takes the answer to `command`; True if there may be more."""
        if self._error is not None:
            return False
        if self._asked != self.cursor:  # the reader went back while this answer was under way
            return True
        if isinstance(reply, ReplyError):
            self.fail(BrokerUnavailable(f"following: {reply}"))
            return False
        for item in reply:  # one by one: what stands before an unreadable entry is still handed on
            try:
                self._entries += entries_of([item])
            except MalformedEntry as error:
                self.fail(error)
                return False
        if reply:
            self.cursor = self._entries[-1][0]
        else:
            self._empty_reads += 1
            self._report_empty |= self._hub.is_tracking or self._empty_reads % _FALLBACK_REPORT == 1
        self._changed.set()
        return len(reply) == BATCH

    def rewind(self, cursor: EventId) -> None:
        """Goes back to an earlier place; what waits is dropped and read again."""
        self._entries.clear()
        if isinstance(self._error, MalformedEntry):
            self._error = None
        self.cursor = cursor
        self._report_empty = False
        self._hub.want(self)

    def fail(self, error: Exception) -> None:
        """Ends the feed with an error behind what waits."""
        self._error = error
        self._changed.set()


class FollowHub:
    """Responsible for one connection on which all followed streams of a process are read."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._feeds: dict[bytes, set[Feed]] = {}
        self._stale: set[Feed] = set()
        self._wake = asyncio.Event()
        self._connection: Connection | None = None
        self._tracking = False
        self._away_since_s: float | None = None
        self._pause_s = FALLBACK_PAUSE_S
        self._runner: asyncio.Task[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<FollowHub feeds={sum(map(len, self._feeds.values()))} stale={len(self._stale)} tracking={self._tracking}>"

    @property
    def is_tracking(self) -> bool:
        """True while the broker tells what changed."""
        return self._tracking

    def feed(self, key: str, after: EventId, *, last_only: bool = False) -> Feed:
        """Starts to follow a stream behind `after`; with `last_only` just its newest entry each time."""
        feed = Feed(self, key, after, last_only)
        if self._closed:
            feed.fail(BrokerUnavailable("closed here"))
            return feed
        self._feeds.setdefault(key.encode(), set()).add(feed)
        self.want(feed)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.get_running_loop().create_task(self._run(), name="skillstream-follow")
        return feed

    def want(self, feed: Feed) -> None:
        """Has a feed read again."""
        if feed in self._feeds.get(feed.key.encode(), ()):
            self._stale.add(feed)
            self._wake.set()

    def drop(self, feed: Feed) -> None:
        """Forgets a feed."""
        feeds = self._feeds.get(feed.key.encode(), set())
        feeds.discard(feed)
        if not feeds:
            self._feeds.pop(feed.key.encode(), None)
        self._stale.discard(feed)

    async def close(self) -> None:
        """Closes the connection and ends all feeds; twice is safe."""
        self._closed = True
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
        self._fail_all(BrokerUnavailable("closed here"))

    async def _run(self) -> None:
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            ready = [feed for feed in self._stale if feed.has_room]
            self._stale.difference_update(ready)
            if not ready:
                continue
            try:
                connection = await self._connected()
                await self._read(connection, ready)
            except BrokerUnavailable as error:
                await self._lost(error)
            else:
                self._away_since_s, self._pause_s = None, FALLBACK_PAUSE_S
            if not self._tracking and self._feeds:
                await asyncio.sleep(FALLBACK_PAUSE_S)
                self._all_stale()

    async def _read(self, connection: Connection, ready: Sequence[Feed]) -> None:
        answers: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()

        def deliver(replies: list[Reply] | BrokerUnavailable) -> None:
            if answers.done():
                return
            if isinstance(replies, BrokerUnavailable):
                answers.set_exception(replies)
            else:
                answers.set_result(replies)

        connection.send(b"".join(pack(feed.command()) for feed in ready), len(ready), deliver)
        try:
            async with asyncio.timeout(self._settings.answer_timeout_s):
                replies = await answers
        except TimeoutError:
            connection.close("no answer to a read")
            raise BrokerUnavailable("no answer to a read") from None
        for reply in replies:
            if isinstance(reply, ReplyError) and reply.kind in RETRY_KINDS:
                connection.close(str(reply))
                raise BrokerUnavailable(f"following: {reply}")
        for feed, reply in zip(ready, replies, strict=True):
            if feed.deliver(reply):
                self.want(feed)

    async def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        connection = await connect(self._settings, protocol=3, on_push=self._pushed)
        try:
            await connection.call("CLIENT", "TRACKING", "ON", timeout_s=self._settings.answer_timeout_s)
            self._tracking = True
        except ReplyError as error:
            if error.kind in RETRY_KINDS:
                connection.close(str(error))
                raise BrokerUnavailable(f"following: {error}") from None
            self._tracking = False
        connection.on_closed = self._connection_closed
        self._connection = connection
        return connection

    def _connection_closed(self) -> None:
        if not self._closed:
            for feeds in self._feeds.values():
                for feed in feeds:
                    feed.reconnected += 1
            self._all_stale()

    def _pushed(self, message: Sequence[Reply]) -> None:
        if not message or message[0] != b"invalidate":
            return
        if message[1] is None:  # FLUSHALL, or the broker's tracking table was full
            self._all_stale()
            return
        for key in message[1]:
            for feed in self._feeds.get(key, ()):
                self._stale.add(feed)
        self._wake.set()

    def _all_stale(self) -> None:
        for feeds in self._feeds.values():
            self._stale.update(feeds)
        self._wake.set()

    async def _lost(self, error: BrokerUnavailable) -> None:
        # patience counts from the first failure in a row: a server may take connections and refuse every read
        now_s = asyncio.get_running_loop().time
        if self._away_since_s is None:
            self._away_since_s = now_s()
        while now_s() - self._away_since_s < self._settings.patience_s:
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            try:
                await self._connected()
            except BrokerUnavailable as again:
                error = again
            else:
                self._all_stale()
                return
        self._away_since_s, self._pause_s = None, FALLBACK_PAUSE_S
        self._fail_all(error)

    def _fail_all(self, error: BrokerUnavailable) -> None:
        for feeds in list(self._feeds.values()):
            for feed in list(feeds):
                feed.fail(error)
        log.debug("all feeds ended: %s", error)
