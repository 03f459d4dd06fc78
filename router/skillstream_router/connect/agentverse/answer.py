"""A task's events as chat messages: one stream, cut where it reads well, closed whatever happens. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from uagents_core.contrib.protocols.chat import (
    AgentContent,
    EndStreamContent,
    MetadataContent,
    Resource,
    ResourceContent,
    StartStreamContent,
    TextContent,
)

from skillstream.cutting import Boundary, last_boundary, split
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent, ResetEvent, StatusEvent, agent_metadata
from skillstream_schemas.request import compact_json
from skillstream_schemas.state import TaskState

from .identity import stable_uuid

Content = list[AgentContent]
"""The contents of one chat message."""
PIECE_CHARS = 2000
"""A piece without a boundary is not held back beyond this."""
MESSAGE_BYTES = 4000
"""An answer that was not streamed is one message up to this size, and several beyond."""
_OURS = agent_metadata("").keys()


class Answer:
    """Responsible for what is sent next; `stream_id` gives the ids of streams by number, which go on behind `streams`.

    `is_open` is True inside a stream. `take` turns an event into messages; `flush` gives what waits for the end of its sentence,
    once it has waited long enough. The protocol cannot take text back: where an attempt starts again, the stream is closed, and
    the next one, with an id of its own, begins with what was kept.
    """

    def __init__(self, stream_id: Callable[[int], UUID], streams: int = 0) -> None:
        self.streams = streams
        self._stream_id = stream_id
        self.is_open = False
        self._text = ""  # of the attempt that counts
        self._sent = 0  # code points of it
        self._resources: set[str] = set()

    def __repr__(self) -> str:
        return f"<Answer streams={self.streams} open={self.is_open} sent={self._sent}/{len(self._text)}>"

    @property
    def waits(self) -> bool:
        """True while text waits for a boundary."""
        return self._sent < len(self._text)

    def take(self, event: FollowedEvent) -> list[Content]:
        """The messages that an event gives."""
        match event:
            case ChunkEvent(text=str() as text):
                self.add(text)
                return self.ripe()
            case ChunkEvent(mode="snapshot", data=data):
                return self._around(self._resource_contents(data))
            case StatusEvent(text=str() as text, progress=progress, metadata=metadata):
                said = {"status": text, **_plain(metadata), **({} if progress is None else {"progress": f"{progress:g}"})}
                return self._around([MetadataContent(metadata=said)])
            case ResetEvent():
                return self._restart(event)
            case FinalEvent():
                return self._end(event)
            case _:
                return []

    def add(self, text: str) -> None:
        """Takes a piece of text that `ripe` or a later event sends."""
        self._text += text

    @property
    def has_room(self) -> bool:
        """True while one message may well hold more than what waits."""
        return len(self._text) - self._sent < PIECE_CHARS

    def ripe(self) -> list[Content]:
        """What waits, up to the end of its last whole sentence."""
        waiting = self._text[self._sent :]
        end = last_boundary(waiting, Boundary.SENTENCE)
        if end == 0 and not self.has_room:
            end = last_boundary(waiting, Boundary.WORD) or len(waiting)
        return self._say(end)

    def flush(self) -> list[Content]:
        """What waits, up to its last whole word."""
        waiting = self._text[self._sent :]
        return self._say(last_boundary(waiting, Boundary.WORD) or len(waiting))

    def close(self) -> list[Content]:
        """Closes the open stream, if there is one."""
        if not self.is_open:
            return []
        self.is_open = False
        return [[EndStreamContent(stream_id=self._stream_id(self.streams))]]

    def _say(self, chars: int) -> list[Content]:
        """Sends so many code points of what waits, in a stream."""
        if not chars:
            return []
        text = self._text[self._sent : self._sent + chars]
        self._sent += chars
        return [*self._open(), *([TextContent(text=piece)] for piece in split(text, MESSAGE_BYTES, Boundary.SENTENCE))]

    def _open(self) -> list[Content]:
        if self.is_open:
            return []
        self.is_open = True
        self.streams += 1
        return [[StartStreamContent(stream_id=self._stream_id(self.streams))]]

    def _around(self, contents: Content) -> list[Content]:
        """Sends contents behind all text before them."""
        return [*self._say(len(self._text) - self._sent), contents] if contents else []

    def _restart(self, event: ResetEvent) -> list[Content]:
        kept = self._text[: event.keep]
        if self._sent <= len(kept):  # nothing that was sent is taken back
            self._text = kept
            return []
        self._text, self._sent = kept, 0
        said = {"status": "attempt_restarted", "attempt": str(event.attempt)}
        return [*self.close(), [MetadataContent(metadata=said)]]

    def _end(self, final: FinalEvent) -> list[Content]:
        messages: list[Content] = []
        if final.text.startswith(self._text[: self._sent]):
            self._text = final.text
        elif not self._text.startswith(final.text):  # entries were lost on the way here: the final has what counts
            messages += self.close()
            self._text, self._sent = final.text, 0
        if final.chunks or self.streams:
            messages += [*self._say(len(self._text) - self._sent), *self.close()]
        elif text := self._text or _excuse(final):
            messages += [[TextContent(text=piece)] for piece in split(text, MESSAGE_BYTES, Boundary.MARKDOWN)]
        resources = self._resource_contents(final.data)
        if resources:
            messages.append(resources)
        elif final.data is not None and not self._text and not self._resources:
            messages += [[TextContent(text=piece)] for piece in split(compact_json(final.data), MESSAGE_BYTES)]
        if metadata := _metadata_of(final):
            messages.append([MetadataContent(metadata=metadata)])
        return messages

    def _resource_contents(self, data: Any) -> Content:
        contents: Content = []
        for resources in _resources_in(data):
            key = compact_json([resource.dict() for resource in resources])
            if key not in self._resources:
                self._resources.add(key)
                primary = resources[0] if len(resources) == 1 else resources
                contents.append(ResourceContent(resource_id=stable_uuid(self._stream_id(0), key), resource=primary))
        return contents


def _resources_in(data: Any) -> Iterable[list[Resource]]:
    """Resources in structured output: `{"resource": {"uri": …, "mime_type": …}}`, or a list of those that belong together."""
    found = data.get("resource") if isinstance(data, dict) else None
    listed = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
    resources = [
        Resource(uri=each["uri"], metadata=_plain({name: value for name, value in each.items() if name != "uri"}))
        for each in listed
        if isinstance(each.get("uri"), str)
    ]
    if resources:
        yield resources


def _excuse(final: FinalEvent) -> str:
    """What a person reads of a task that ended early without a word."""
    if final.state not in (TaskState.FAILED, TaskState.CANCELED):
        return ""
    ended = "failed" if final.state is TaskState.FAILED else "was canceled"
    return f"The task {ended}: {final.reason or final.error or 'no reason given'}"


def _metadata_of(final: FinalEvent) -> dict[str, str]:
    """What is said beside the text at the end: nothing for a plain success."""
    own = _plain({name: value for name, value in final.metadata.items() if name not in _OURS})
    if final.state is TaskState.COMPLETED and not own:
        return {}
    more = {"error": final.error, "reason": final.reason}
    return {**own, "status": final.state.value, **{name: value for name, value in more.items() if value}}


def _plain(values: Any) -> dict[str, str]:
    """Metadata as the protocol has it: texts only."""
    return {str(name): value if isinstance(value, str) else compact_json(value) for name, value in (values or {}).items()}
