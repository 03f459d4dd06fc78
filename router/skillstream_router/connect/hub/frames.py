"""Frames of the hub: what comes in, sorted, and what goes out. No I/O.

Shapes follow the vendor's own bridge, where `task.status` and `task.complete` are requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from skillstream_router.json_rpc import (
    BAD_ID,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    NEITHER,
    NO_OBJECT,
    PARSE_ERROR,
    Frame,
    RpcId,
    call_frame,
    error_frame,
    is_id,
)
from skillstream_router.society import (
    COMPLETE,
    STATUS,
    data_part,
    ending_metadata,
    progress_metadata,
    restart_metadata,
    task_params,
    text_part,
)
from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import InvalidRequest, MalformedEntry
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent, ResetEvent, StatusEvent
from skillstream_schemas.money import micros_to_usd
from skillstream_schemas.request import describe, read_json
from skillstream_schemas.state import TaskState

_PASSING = (INTERNAL_ERROR, *range(-32099, -31999))
"""Codes of errors that say more about the hub's moment than about the frame."""
_ID_CHARS = 256


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the hub, or a notification where `id` is None."""

    method: str
    params: Any
    id: RpcId | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the hub answers to a request of ours; `error` is None for a result."""

    id: RpcId
    result: Any
    error: Frame | None

    @property
    def may_pass(self) -> bool:
        """True for an error after which the same frame may be taken."""
        return self.error is not None and self.error.get("code") in _PASSING


@dataclass(frozen=True, slots=True)
class Garbage:
    """What is no JSON-RPC; `reply` is the error to answer with."""

    reply: Frame


class Part(BaseModel):
    """A piece of a message: text, structured data, or something else, which is left out."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    type: str
    text: str = ""
    data: JsonValue = None


class Message(BaseModel):
    """What a user says."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text parts, one below the other."""
        return "\n".join(part.text for part in self.parts if part.type == "text")

    @property
    def data(self) -> list[JsonValue]:
        """The data parts."""
        return [part.data for part in self.parts if part.type == "data"]


class TaskExecute(BaseModel):
    """Parameters of `task.execute`; `id` is the hub's task."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(min_length=1, max_length=_ID_CHARS)
    session_id: str | None = Field(default=None, alias="sessionId", max_length=_ID_CHARS)
    message: Message
    metadata: dict[str, JsonValue] | None = None

    @classmethod
    def read(cls, params: Any) -> TaskExecute:
        """Checks the parameters; raises InvalidRequest."""
        try:
            return cls.model_validate(params)
        except ValidationError as error:
            raise InvalidRequest(describe(error)) from None


def read_frame(raw: str | bytes) -> Call | Answer | Garbage:
    """Sorts what came over the socket."""
    try:
        text = raw if isinstance(raw, str) else raw.decode()
        frame = read_json("frame", text)
    except (MalformedEntry, UnicodeDecodeError):
        return Garbage(error_frame(None, PARSE_ERROR, "not JSON"))
    if not isinstance(frame, dict) or frame.get("jsonrpc", "2.0") != "2.0":
        return Garbage(error_frame(None, INVALID_REQUEST, NO_OBJECT))
    rpc_id = frame.get("id")
    if not is_id(rpc_id):
        return Garbage(error_frame(None, INVALID_REQUEST, BAD_ID))
    if isinstance(method := frame.get("method"), str):
        return Call(method, frame.get("params", {}), rpc_id)
    if rpc_id is not None and "method" not in frame and ("result" in frame or isinstance(frame.get("error"), dict)):
        return Answer(rpc_id, frame.get("result"), frame.get("error"))
    if "error" in frame and rpc_id is None and "method" not in frame:
        return Answer("", None, frame["error"] if isinstance(frame["error"], dict) else {})  # never answer an error
    return Garbage(error_frame(rpc_id, INVALID_REQUEST, NEITHER))


def register_frame(card: AgentCard, token: str, visibility: str, rpc_id: RpcId) -> Frame:
    """`agent.register` with the agent's card, skills and prices."""
    skills = [
        {
            "id": skill.name, "name": skill.name, "description": skill.description, "tags": list(skill.tags),
            "examples": list(skill.examples), "price_usd": micros_to_usd(skill.price_micros), "streaming": skill.streaming,
        }
        for skill in card.skills
    ]  # fmt: skip
    agent_card = {"name": card.name, "description": card.description, "skills": skills}
    params = {"agent_name": card.name, "auth_token": token, "visibility": visibility, "agent_card": agent_card,
              "framework": "skillstream"}  # fmt: skip
    return call_frame("agent.register", params, rpc_id)


def status_frame(hub_task: str, event: FollowedEvent, rpc_id: RpcId) -> Frame | None:
    """`task.status` for what is shown while the task runs; None for what has no place at the hub.

    A piece of text and a report of progress look alike there. A snapshot is a data part under one id, so that each replaces
    the one before.
    """
    metadata: Frame = {}
    match event:
        case ChunkEvent(text=str() as text):
            part = text_part(text)
        case ChunkEvent(mode="snapshot", data=data):
            part = data_part(hub_task, data)
        case StatusEvent(text=str() as text):
            part, metadata = text_part(text), progress_metadata(event)
        case ResetEvent(attempt=attempt, keep=keep):
            goes_on = f"goes on behind the first {keep} characters" if keep else "starts the text again"
            part, metadata = text_part(f"\n\n[Attempt {attempt} {goes_on}.]\n\n"), restart_metadata(event)
        case _:
            return None
    return call_frame(STATUS, task_params(hub_task, TaskState.WORKING, [part], metadata), rpc_id)


def complete_frame(hub_task: str, final: FinalEvent, rpc_id: RpcId) -> Frame:
    """`task.complete` with the whole text, the structured result and the final's metadata."""
    parts = [text_part(final.text or (final.reason or "" if final.error else ""))]
    if final.data is not None:
        parts.append(data_part(hub_task, final.data))
    return call_frame(COMPLETE, task_params(hub_task, final.state, parts, ending_metadata(final)), rpc_id)
