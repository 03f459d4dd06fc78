"""A handle on one task: follow it, await it, cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from skillstream_schemas.errors import InvalidRequest, ResultTimeout, TextReset, UnknownTask
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent, ResetEvent, StatusEvent, event_from_fields
from skillstream_schemas.ids import START, EventId, check_name
from skillstream_schemas.limits import utf8_length
from skillstream_schemas.state import TaskState

from .broker import Broker, CancelRecorded, Settlement
from .closing import Verdict, close_from_outside
from .cluster_follow import Following
from .entries import Entry
from .stream_reader import StreamReader, look

CANCELLER = "canceller"
_READ = 500


class Task:
    """A task on the broker, by its id.

    `id` is the task's id, `stream` the key of its stream: `redis-cli XRANGE <stream> - +` shows it.
    """

    def __init__(self, broker: Broker, hub: Following, task_id: str) -> None:
        self.id = check_name(task_id, "the task id")
        self.stream = broker.keys.events(task_id)
        self._broker = broker
        self._hub = hub

    def __repr__(self) -> str:
        return f"<Task {self.id}>"

    async def events(self, after: str | EventId = "0") -> AsyncGenerator[FollowedEvent, None]:
        """Yields the events behind `after`, then live ones, and ends behind the final.

        An event's `id` is the cursor to come back with, at any time while the stream is kept. A ResetEvent
        says that a newer attempt took text back. Raises UnknownTask, StreamGap where entries are missing,
        StreamLost where the stream vanishes, MalformedEntry and BrokerUnavailable.
        """
        async with aclosing(self.batches(after)) as batches:
            async for batch in batches:
                for item in batch:
                    yield item if isinstance(item, ResetEvent) else event_from_fields(*item)

    def batches(self, after: str | EventId = "0") -> AsyncGenerator[list[Entry | ResetEvent], None]:
        """The same as `events`, unparsed and as much at once as came in: for faces that pass it on."""
        cursor = after if isinstance(after, EventId) else EventId.parse(after)
        return StreamReader(self._broker, self._hub, self.id, cursor).batches()

    async def text(self, after: str | EventId = "0") -> AsyncGenerator[str, None]:
        """Yields the pieces of the text as they come.

        Raises TextReset where a newer attempt takes text back that was yielded: keep its first `keep` code points
        and read on with `text(after=error.after)`. A failed task simply ends: `result()` tells why.
        """
        cursor = after if isinstance(after, EventId) else EventId.parse(after)
        given = await self.length_at(cursor)
        async with aclosing(self.events(cursor)) as events:
            async for event in events:
                match event:
                    case ChunkEvent(text=str() as piece):
                        given += len(piece)
                        yield piece
                    case ResetEvent(attempt=attempt, keep=keep) if keep < given:
                        raise TextReset(self.id, attempt, keep, after=f"{attempt}-1")
                    case FinalEvent(chunks=0, text=text) if len(text) > given:
                        yield text[given:]
                    case _:
                        pass

    async def result(self, timeout: float | None = None) -> FinalEvent:
        """Waits for the final event, for `timeout` seconds at most; raises ResultTimeout, UnknownTask, StreamLost."""
        try:
            async with asyncio.timeout(timeout):
                return await self._final()
        except TimeoutError:
            raise ResultTimeout(f"task {self.id} is not final after {timeout:g} s") from None

    async def cancel(self, reason: str = "", *, timeout: float | None = None) -> FinalEvent:
        """Cancels the task and returns its final, which is another one where the task ended first.

        A task that waits for an attempt is closed here; a running one by its worker, for which this waits `timeout` seconds.
        Raises UnknownTask and ResultTimeout: the request stands all the same. Raises InvalidRequest for a reason that
        is no valid Unicode text or has more UTF-8 bytes than an event may have.
        """
        self._check_reason(reason)
        recorded = await self._broker.request_cancel(self.id, reason)
        if recorded is None:
            raise UnknownTask(f"task {self.id}")
        if isinstance(recorded, FinalEvent):
            return recorded
        if recorded.is_waiting:
            return await self._close(recorded, reason)
        return await self.result(timeout)

    def _check_reason(self, reason: str) -> None:
        limit = self._broker.settings.limits.event_bytes
        try:
            size_bytes = utf8_length(reason)
        except UnicodeEncodeError:
            raise InvalidRequest("the reason is not valid Unicode text: it holds a lone surrogate") from None
        if size_bytes > limit:
            raise InvalidRequest(f"the reason has {size_bytes} bytes, the limit is {limit}")

    async def _close(self, recorded: CancelRecorded, reason: str) -> FinalEvent:
        final = await close_from_outside(self._broker, self.id, Verdict(TaskState.CANCELED, reason), CANCELLER)
        await self._broker.settle(recorded.agent, [Settlement(self.id)])
        return final

    async def _final(self) -> FinalEvent:
        feed = self._hub.feed(self.stream, START, last_only=True)
        cursor = START
        try:
            while True:
                entries = await feed.next()
                if entries is None:
                    # another stream than the one read before (failover)
                    if await look(self._broker, self.id, cursor) != "live":
                        cursor = START
                        feed.rewind(START)
                    continue
                cursor, fields = entries[-1]
                if fields.get("type") == "final":
                    event = event_from_fields(cursor, fields)
                    assert isinstance(event, FinalEvent)
                    return event
        finally:
            feed.close()

    async def length_at(self, cursor: EventId) -> int:
        """Code points of the text that a reader has who stands at the cursor."""
        length = 0
        place = EventId(cursor.attempt, 0)
        while place < cursor and cursor.attempt > 0:
            entries = await self._broker.read(self.id, place, count=min(_READ, cursor.seq - place.seq))
            for event_id, fields in entries:
                if event_id > cursor:
                    return length
                match event_from_fields(event_id, fields):
                    case StatusEvent(resume_from=int() as kept):
                        length += kept
                    case ChunkEvent(text=str() as piece):
                        length += len(piece)
                    case _:
                        pass
            if not entries:
                return length
            place = entries[-1][0]
        return length
