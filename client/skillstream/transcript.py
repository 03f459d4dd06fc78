"""What a reader of a stream holds in mind: order checked, text of the attempt that counts."""

from __future__ import annotations

from skillstream_schemas.errors import StreamGap
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent, ResetEvent, StatusEvent
from skillstream_schemas.ids import START, EventId


class Transcript:
    """Responsible for the text of a task as its events come in, and for seeing that none is missing.

    Starts behind `after`: with a cursor inside the stream the text is what came behind it.
    """

    def __init__(self, task_id: str, after: EventId = START) -> None:
        self.task_id = task_id
        self.cursor = after
        self.last_worker: str | None = None
        self.final: FinalEvent | None = None
        self._parts: list[str] = []

    def __repr__(self) -> str:
        return f"<Transcript {self.task_id} at {self.cursor} final={self.final is not None}>"

    @property
    def text(self) -> str:
        """The text so far: chunks of the attempt that counts behind what it kept."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def keep(self) -> int | None:
        """How many code points an ending keeps: all; None before any attempt."""
        return None if self.cursor.attempt == 0 else len(self.text)

    def take(self, event: StatusEvent | ChunkEvent | FinalEvent) -> list[FollowedEvent]:
        """Takes the next event; returns it, behind a ResetEvent where it opens another attempt.

        Raises StreamGap where events are missing before it; an event seen before gives an empty list.
        """
        if not self.cursor.is_followed_by(event.id):
            if event.id <= self.cursor:
                return []
            raise StreamGap(self.task_id, str(self.cursor), str(event.id))
        self.cursor = event.id
        followed: list[FollowedEvent] = [event]
        match event:
            case ChunkEvent(text=str() as text):
                self._parts.append(text)
            case StatusEvent(worker=str() as worker):
                self.last_worker = worker
                if event.id.attempt > 1:
                    keep = event.resume_from or 0
                    self._parts = [self.text[:keep]]
                    followed.insert(0, ResetEvent(attempt=event.id.attempt, keep=keep))
            case FinalEvent():
                self.final = event
            case _:
                pass
        return followed
