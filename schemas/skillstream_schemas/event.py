"""Events: what stands on a task's stream, and how it is written in its fields.

Fields are plain UTF-8 text, nested values JSON, so that redis-cli shows a readable stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, model_validator

from .errors import MalformedEntry
from .ids import SUBMISSION, EventId
from .limits import MAX_FIELDS
from .request import WIRE_VERSION, TaskRequest, compact_json, describe, read_json
from .state import TaskState

Fields = Mapping[str, str]


class HandedBack(StrEnum):
    """Why a worker gave an attempt up: it stops, the skill asked for it, or the skill is another worker's and did not run."""

    DRAIN = "drain"
    RETRY = "retry"
    ELSEWHERE = "elsewhere"


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: EventId
    at: int = Field(ge=0)

    def _write(self, **fields: Any) -> dict[str, str]:
        written = {"type": cast(Any, self).type}
        written.update((name, _text(value)) for name, value in fields.items() if value is not None)
        written["at"] = str(self.at)
        return written


class StatusEvent(_Event):
    """A change that is shown but is no output: submission, opening of an attempt, progress, hand-back.

    `id` is the cursor, `at` unix ms. The submission carries `request`; an opening carries `worker`, `claim`
    (µs of broker time), `strikes` and, where a newer attempt goes on behind older text, `resume_from`
    (code points kept). Progress carries `text`, `progress` (0 to 1) and `metadata`.
    """

    type: Literal["status"] = "status"
    state: TaskState | None = None
    text: str | None = None
    progress: float | None = Field(default=None, ge=0, le=1)
    metadata: dict[str, JsonValue] | None = None
    worker: str | None = None
    claim: int | None = None
    strikes: int | None = None
    resume_from: int | None = Field(default=None, ge=0)
    handed_back: HandedBack | None = None
    request: TaskRequest | None = None

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        shapes = (self.request, self.worker, self.handed_back, self.text)
        if sum(shape is not None for shape in shapes) != 1:
            raise ValueError("a status is a submission, an opening, a hand-back or a text, and only one of them")
        written = {name for name, value in self if value is not None} - {"type", "id", "at"}
        state: TaskState | None = None
        if self.request is not None:
            needed, allowed, state = {"state"}, {"request"}, TaskState.SUBMITTED
        elif self.worker is not None:
            needed, allowed, state = {"state", "claim", "strikes"}, {"worker", "resume_from"}, TaskState.WORKING
        elif self.text is not None:
            needed, allowed, state = {"state"}, {"text", "progress", "metadata"}, TaskState.WORKING
        else:
            needed, allowed = set(), {"handed_back"}
        if missing := needed - written:
            raise ValueError(f"{', '.join(sorted(missing))} missing")
        if surplus := written - needed - allowed:
            raise ValueError(f"{', '.join(sorted(surplus))} does not belong in a status of this shape")
        if self.state is not state:
            raise ValueError(f"the state {self.state} does not belong in a status of this shape")
        return self

    def to_fields(self) -> dict[str, str]:
        """The entry's fields, in the order in which they are written."""
        if self.request is not None:
            return {
                "type": "status",
                "state": TaskState.SUBMITTED.value,
                "v": WIRE_VERSION,
                "at": str(self.at),
                **self.request.to_fields(),
            }
        return self._write(
            state=self.state, text=self.text, progress=self.progress, metadata=self.metadata, worker=self.worker,
            claim=self.claim, strikes=self.strikes, resume_from=self.resume_from, handed_back=self.handed_back,
        )  # fmt: skip


class ChunkEvent(_Event):
    """A piece of output: text to append, or structured `data` as a `snapshot` (replaces) or a `delta` (JSON Patch)."""

    type: Literal["chunk"] = "chunk"
    text: str | None = None
    data: JsonValue = None
    mode: Literal["snapshot", "delta"] | None = None

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if (self.text is None) == (self.mode is None) or ("data" in self.model_fields_set) != (self.mode is not None):
            raise ValueError("a chunk carries text, or data with its mode")
        return self

    def to_fields(self) -> dict[str, str]:
        """The entry's fields, in the order in which they are written."""
        if self.mode is not None:
            return self._write(mode=self.mode, data=compact_json(self.data))
        return self._write(text=self.text)


class FinalEvent(_Event):
    """The end of a task; nothing follows.

    `text` is the whole text, `data` the structured result, `metadata` holds agentId, agentName and the skill's
    own keys. `error` is a stable code where `state` is failed, `reason` a sentence. `chunks` counts the text
    chunks of the last attempt; with 0 the text was never streamed.
    """

    type: Literal["final"] = "final"
    state: TaskState
    text: str
    data: JsonValue = None
    metadata: dict[str, JsonValue]
    error: str | None = None
    reason: str | None = None
    usage: dict[str, JsonValue] | None = None
    chunks: int = Field(ge=0)

    @model_validator(mode="after")
    def _is_final(self) -> Self:
        if not self.state.is_final:
            raise ValueError(f"a final cannot have the state {self.state}")
        return self

    def to_fields(self) -> dict[str, str]:
        """The entry's fields, in the order in which they are written."""
        return self._write(
            state=self.state, text=self.text, data=None if self.data is None else compact_json(self.data),
            metadata=self.metadata, error=self.error, reason=self.reason, usage=self.usage, chunks=self.chunks,
        )  # fmt: skip


class ResetEvent(BaseModel):
    """A newer attempt opened: the first `keep` code points of the text stand, the rest is taken back.

    It has no place on the stream; followers make it from the opening. `attempt` is 0 where the broker itself went
    back (failover): all is taken back, and the events come again from the submission.
    """

    model_config = ConfigDict(frozen=True)

    type: Literal["reset"] = "reset"
    attempt: int
    keep: int


TaskEvent = Annotated[StatusEvent | ChunkEvent | FinalEvent, Field(discriminator="type")]
FollowedEvent = StatusEvent | ChunkEvent | FinalEvent | ResetEvent

_ADAPTER: TypeAdapter[StatusEvent | ChunkEvent | FinalEvent] = TypeAdapter(TaskEvent)
_validated: Callable[[dict[str, Any]], StatusEvent | ChunkEvent | FinalEvent] = _ADAPTER.validator.validate_python
"""The adapter's own method puts a layer of Python around each event."""
_JSON = ("metadata", "data", "usage")


def agent_metadata(agent: str) -> dict[str, JsonValue]:
    """What the metadata of every final holds beside the skill's own."""
    return {"agentId": agent, "agentName": agent}


def event_from_fields(event_id: EventId, fields: Fields) -> StatusEvent | ChunkEvent | FinalEvent:
    """Reads an event from the fields of the entry `event_id`.

    Raises MalformedEntry, which names the entry, for a missing, unknown or unreadable field or another wire version.
    """
    try:
        if len(fields) > MAX_FIELDS:
            raise MalformedEntry(f"{len(fields)} fields, the limit is {MAX_FIELDS}")
        if event_id == SUBMISSION:
            return _submission(fields)
        if "id" in fields:
            raise MalformedEntry("id: no field of an event")
        values: dict[str, Any] = dict(fields, id=event_id)
        for name in _JSON:
            if name in values:
                values[name] = read_json(name, values[name])
        return _validated(values)
    except ValidationError as error:
        raise MalformedEntry(f"entry {event_id}: {describe(error)}") from None
    except MalformedEntry as error:
        raise MalformedEntry(f"entry {event_id}: {error.message}") from None


def request_from_fields(fields: Fields) -> TaskRequest:
    """Reads the request of a submission from the fields of the entry 0-1; raises MalformedEntry."""
    rest = dict(fields)
    kind, state, version = rest.pop("type", None), rest.pop("state", None), rest.pop("v", None)
    if version != WIRE_VERSION:
        raise MalformedEntry(f"wire version {str(version)[:40]!r} is not {WIRE_VERSION}")
    if kind != "status" or state != TaskState.SUBMITTED:
        raise MalformedEntry("the first entry is not a submission")
    rest.pop("at", None)
    return TaskRequest.from_fields(rest)


def _submission(fields: Fields) -> StatusEvent:
    request = request_from_fields(fields)
    return StatusEvent.model_validate(
        {"id": SUBMISSION, "at": fields.get("at"), "state": TaskState.SUBMITTED, "request": request}
    )


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return compact_json(value)
    return value if type(value) is str else str(value)
