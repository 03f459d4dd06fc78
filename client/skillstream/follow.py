"""Following streams: one connection for all followers of a process, told by the broker what changed.

The connection asks for CLIENT TRACKING (RESP3): a stream that was read and gets a new entry brings one
invalidation; what is stale is read again in one batch. Where the broker refuses tracking, all streams are read
each `FALLBACK_PAUSE_S` instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from skillstream_schemas.errors import BrokerUnavailable
from skillstream_schemas.ids import EventId
from skillstream_schemas.settings import Settings

from .breaking_off import break_off
from .calling import RETRY_KINDS, Caller, Problem
from .connection import Connection, connect
from .feed import Feed
from .resp import Reply, ReplyError

log = logging.getLogger(__name__)

FALLBACK_PAUSE_S = 0.02
_CROWD = 500
"""Followed streams from which on reads gather: a read takes the event loop around several times, however little it brings."""
_GATHER_S = 0.012
"""From one read of a crowd to the next: callers who wait for one result after the other stay below what a crowd can ask."""
_LONGEST_PAUSE_S = 1.0


class FollowHub:
    """Responsible for one connection on which all followed streams of a process are read; `caller` says what is hopeless."""

    def __init__(self, settings: Settings, caller: Caller) -> None:
        self._settings, self._caller = settings, caller
        self._feeds: dict[bytes, set[Feed]] = {}
        self._stale: set[Feed] = set()
        self._wake = asyncio.Event()
        self._read_at_s = 0.0
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
        self.follow(feed)
        return feed

    def follow(self, feed: Feed) -> None:
        """Reads for a feed from now on."""
        self._feeds.setdefault(feed.key.encode(), set()).add(feed)
        self.want(feed)
        if self._runner is None or self._runner.done():
            self._runner = asyncio.get_running_loop().create_task(self._run(), name="skillstream-follow")

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
            await break_off(self._runner)
        if self._connection is not None:
            self._connection.close()
        self._fail_all(BrokerUnavailable("closed here"))

    async def _run(self) -> None:
        now_s = asyncio.get_running_loop().time
        while not self._closed:
            await self._wake.wait()
            if len(self._feeds) >= _CROWD:
                await asyncio.sleep(self._read_at_s + _GATHER_S - now_s())
            self._wake.clear()
            stale, self._stale = self._stale, set()  # a set that once was large stays slow to walk
            ready = [feed for feed in stale if feed.has_room]
            if len(ready) < len(stale):
                self._stale.update(feed for feed in stale if not feed.has_room)
            if not ready:
                continue
            self._read_at_s = now_s()
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

        connection.send(b"".join([feed.command() for feed in ready]), len(ready), deliver)
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
        await self._hand_out(ready, replies)

    async def _hand_out(self, feeds: Sequence[Feed], replies: Sequence[Reply]) -> None:
        for feed, reply in zip(feeds, replies, strict=True):
            if feed.deliver(reply):
                self.want(feed)

    async def _connect(self) -> Connection:
        return await connect(self._settings, protocol=3, on_push=self._pushed)

    async def _is_needed(self, problem: Problem) -> bool:
        """Asked before each try to connect again: False where no stream is left that this server has."""
        return True

    async def _connected(self) -> Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        connection = await self._connect()
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
            self._stale.update(self._feeds.get(key, ()))
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
        while now_s() - self._away_since_s < self._settings.patience_s and not self._caller.is_hopeless(error):
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            if not await self._is_needed(error):
                break
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
