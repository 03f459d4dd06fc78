"""One reader's way through a task's stream: order, gaps, resets, and what a broken connection leaves in doubt."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from skillstream_schemas.errors import MalformedEntry, StreamGap, StreamLost, UnknownTask
from skillstream_schemas.event import ResetEvent, StatusEvent, event_from_fields
from skillstream_schemas.ids import START, EventId

from .broker import Broker
from .cluster_follow import Following
from .entries import Entry
from .feed import Feed


class StreamReader:
    """Responsible for the entries of one task behind a cursor, each once and in order, to the final.

    `cursor` is the id of the last entry handed out; `claim` the one shown by the opening of the cursor's attempt,
    None where it was not seen.
    """

    def __init__(self, broker: Broker, hub: Following, task_id: str, after: EventId = START) -> None:
        self.task_id = task_id
        self.cursor = after
        self.claim: int | None = None
        self.ended = False
        self._broker = broker
        self._hub = hub

    def __repr__(self) -> str:
        return f"<StreamReader {self.task_id} at {self.cursor} ended={self.ended}>"

    async def batches(self) -> AsyncGenerator[list[Entry | ResetEvent], None]:
        """Yields what came in, unparsed, a ResetEvent before each opening of a newer attempt; ends behind the final.

        Raises UnknownTask, StreamGap where entries are missing, StreamLost where the stream vanishes, MalformedEntry
        and BrokerUnavailable.
        """
        feed = self._hub.feed(self._broker.keys.events(self.task_id), self.cursor)
        reconnected = feed.reconnected
        try:
            while not self.ended:
                while not feed.is_ready:
                    await feed.changed()
                entries = feed.take()
                if feed.reconnected != reconnected:
                    reconnected = feed.reconnected
                    if await self._went_back():
                        yield [self._rewind(feed)]
                    else:
                        feed.rewind(self.cursor)  # what waits may come from before and after the break
                    continue
                if entries is None:
                    match await look(self._broker, self.task_id, self.cursor):
                        case "ended":
                            return
                        case "went back":
                            yield [self._rewind(feed)]
                    continue
                batch: list[Entry | ResetEvent] = []
                gap = self._take(entries, batch)
                if batch:
                    yield batch
                if gap is not None:
                    raise gap
        finally:
            feed.close()

    def _take(self, entries: list[Entry], batch: list[Entry | ResetEvent]) -> StreamGap | None:
        """Moves what follows the cursor into the batch; returns the gap before the rest."""
        cursor = self.cursor
        for entry in entries:
            event_id, fields = entry
            if event_id <= cursor:
                continue
            if not cursor.is_followed_by(event_id):
                return StreamGap(self.task_id, str(cursor), str(event_id))
            if event_id.is_opening:
                batch += self._opened(entry)
            batch.append(entry)
            self.cursor = cursor = event_id
            if fields.get("type") == "final":
                self.ended = True
                return None
        return None

    def _opened(self, entry: Entry) -> list[ResetEvent]:
        """Notes whose attempt opens; what takes text back, where an older one may have said something."""
        try:
            opening = event_from_fields(*entry)
        except MalformedEntry:  # whoever reads the entry hears so, in its place
            return []
        if not isinstance(opening, StatusEvent):
            return []
        self.claim = opening.claim
        attempt = opening.id.attempt
        return [ResetEvent(attempt=attempt, keep=opening.resume_from or 0)] if attempt > 1 else []

    async def _went_back(self) -> bool:
        """True where the broker shows, after a reconnect, other events under the ids already seen (rule P15)."""
        if self.cursor == START or await look(self._broker, self.task_id, self.cursor) == "went back":
            return self.cursor != START
        opening = await self._opening(self.cursor.attempt)
        return self.claim is not None and (opening is None or opening.claim != self.claim)

    async def _opening(self, attempt: int) -> StatusEvent | None:
        entries = await self._broker.read(self.task_id, EventId(attempt, 0), count=1)
        if not entries or entries[0][0] != EventId(attempt, 1):
            return None
        event = event_from_fields(*entries[0])
        return event if isinstance(event, StatusEvent) else None

    def _rewind(self, feed: Feed) -> ResetEvent:
        self.cursor, self.claim = START, None
        feed.rewind(START)
        return ResetEvent(attempt=0, keep=0)


async def look(broker: Broker, task_id: str, cursor: EventId) -> str:
    """What the ends of the stream say to a reader to whom nothing new came: ended, went back, or live.

    Raises UnknownTask, or StreamLost behind a cursor, where there is no stream.
    """
    ends = await broker.ends(task_id)
    if ends is None:
        raise UnknownTask(f"task {task_id}") if cursor == START else StreamLost(f"task {task_id}")
    top, fields = ends[1]
    if top < cursor:
        return "went back"
    return "ended" if top == cursor and fields.get("type") == "final" else "live"
