"""A task's events for readers that only append: what of its text is told, and when it cannot be told on."""

from __future__ import annotations

from abc import ABC, abstractmethod

from skillstream.entries import Entry
from skillstream_router.http.event_json import is_text_chunk
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.event import ChunkEvent, FinalEvent, ResetEvent, StatusEvent, event_from_fields
from skillstream_schemas.gateway_errors import AttemptRestarted, GatewayStopping
from skillstream_schemas.ids import START, EventId
from skillstream_schemas.request import TaskRequest, compact_json


class TextFace(ABC):
    """Responsible for telling text to a reader who cannot take any of it back.

    `given` is how many code points the reader has already. What attempts before `settled` said is kept back, so that
    who comes after a restart is told the newest attempt's text. Structured output has no deltas here: where a task has no
    text, its data is told at the end as JSON.
    """

    opening = b""
    # with a blank line of its own: readers that split at those would else take it for a part of the next event
    keep_alive = b": keep-alive\n\n"

    def __init__(self, *, given: int = 0, settled: int = 0, progress: bool = False) -> None:
        self._given = given
        self._settled = settled
        self._progress = progress
        self._folded = ""
        self._place = START

    def told(self, item: Entry | ResetEvent) -> str:
        """What is written for an event; raises AttemptRestarted, MalformedEntry. Text chunks take the short way."""
        if isinstance(item, ResetEvent):
            self._reset(item)
            return ""
        self._place, fields = item
        if is_text_chunk(fields) and self._place.attempt >= self._settled:
            text = fields["text"]
            self._given += len(text)
            return self._delta(self._place, text)
        return self._taken(item)

    def cut(self) -> bytes:
        """Says so: a cut answer must not pass for a whole one."""
        return self.failure(GatewayStopping())

    def _taken(self, item: Entry) -> str:
        match event_from_fields(*item):
            case ChunkEvent(text=str() as text):
                self._folded += text
            case StatusEvent(request=None, text=None) if self._place.attempt >= self._settled:
                return self._unfolded()
            case StatusEvent(request=None, text=str()) as status if self._progress:
                return self._status(status)
            case StatusEvent(request=TaskRequest()):
                return self._submitted()
            case FinalEvent() as final:
                told = self._unfolded()
                return told + self._final(final, spoken_text(final)[self._given :])
            case _:
                pass
        return ""

    def _reset(self, reset: ResetEvent) -> None:
        self._folded = self._folded[: reset.keep]
        if reset.keep < self._given:
            raise AttemptRestarted(reset.attempt, reset.keep)

    def _unfolded(self) -> str:
        text, self._folded = self._folded, ""
        self._given += len(text)
        return self._delta(self._place, text) if text else ""

    @abstractmethod
    def failure(self, error: SkillstreamError) -> bytes:
        """The last words of a stream that cannot go on."""

    @abstractmethod
    def _delta(self, place: EventId, text: str) -> str:
        """A piece of text."""

    def _submitted(self) -> str:
        """What the submission brings."""
        return ""

    @abstractmethod
    def _status(self, status: StatusEvent) -> str:
        """Progress, for readers that asked for it."""

    @abstractmethod
    def _final(self, final: FinalEvent, rest: str) -> str:
        """The end; `rest` is what was not told of the text."""


def spoken_text(final: FinalEvent) -> str:
    """The text of a task's answer: its own, or its data as JSON where it has no text."""
    return final.text if final.text or final.data is None else compact_json(final.data)
