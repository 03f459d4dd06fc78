"""JSON-RPC 2.0 as the hub speaks it: what comes in, sorted, and what goes out. No I/O.

Shapes follow the vendor's own bridge: text stands in `status.message.parts`, `task.status` and `task.complete` are requests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from skillstream_schemas.card import AgentCard
from skillstream_schemas.errors import InvalidRequest, MalformedEntry
from skillstream_schemas.event import ChunkEvent, FinalEvent, FollowedEvent, ResetEvent, StatusEvent
from skillstream_schemas.money import micros_to_usd
from skillstream_schemas.request import describe, read_json
from skillstream_schemas.state import TaskState

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
_PASSING = (INTERNAL_ERROR, *range(-32099, -31999))
"""Codes of errors that say more about the hub's moment than about the frame."""
_ID_CHARS = 256
RpcId = str | int
Frame = dict[str, Any]


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
        return Garbage(error_frame(None, INVALID_REQUEST, "not one JSON-RPC 2.0 object"))
    rpc_id = frame.get("id")
    if rpc_id is not None and (isinstance(rpc_id, bool) or not isinstance(rpc_id, (str, int)) or len(str(rpc_id)) > _ID_CHARS):
        return Garbage(error_frame(None, INVALID_REQUEST, "the id is neither a string nor an integer, or too long"))
    if isinstance(method := frame.get("method"), str):
        return Call(method, frame.get("params", {}), rpc_id)
    if rpc_id is not None and "method" not in frame and ("result" in frame or isinstance(frame.get("error"), dict)):
        return Answer(rpc_id, frame.get("result"), frame.get("error"))
    if "error" in frame and rpc_id is None and "method" not in frame:
        return Answer("", None, frame["error"] if isinstance(frame["error"], dict) else {})  # never answer an error
    return Garbage(error_frame(rpc_id, INVALID_REQUEST, "neither a call nor an answer"))


def write_frame(frame: Frame) -> str:
    """The frame as text."""
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":"))


def call_frame(method: str, params: Frame, rpc_id: RpcId | None = None) -> Frame:
    """A request, or a notification without an id."""
    frame: Frame = {"jsonrpc": "2.0", "method": method, "params": params}
    return frame if rpc_id is None else {**frame, "id": rpc_id}


def result_frame(rpc_id: RpcId, result: Frame) -> Frame:
    """The answer to a request of the hub."""
    return {"jsonrpc": "2.0", "id": rpc_id, "result": result}


def error_frame(rpc_id: RpcId | None, code: int, message: str, our_code: str | None = None) -> Frame:
    """An error answer; `our_code` is the stable code of an error of ours."""
    error: Frame = {"code": code, "message": message}
    if our_code is not None:
        error["data"] = {"code": our_code}
    return {"jsonrpc": "2.0", "id": rpc_id, "error": error}


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
    part: Frame
    match event:
        case ChunkEvent(text=str() as text):
            part = {"type": "text", "text": text}
        case ChunkEvent(mode="snapshot", data=data):
            part = _data_part(hub_task, data)
        case StatusEvent(text=str() as text, progress=progress, metadata=said):
            part = {"type": "text", "text": text}
            metadata = {**(said or {}), **({} if progress is None else {"progress": progress})}
        case ResetEvent(attempt=attempt, keep=keep):
            # what was shown cannot be taken back here; the completion has the text that counts
            goes_on = f"goes on behind the first {keep} characters" if keep else "starts the text again"
            part = {"type": "text", "text": f"\n\n[Attempt {attempt} {goes_on}.]\n\n"}
            metadata = {"code": "attempt_restarted", "attempt": attempt, "keep": keep}
        case _:
            return None
    return _task_frame("task.status", hub_task, TaskState.WORKING, [part], metadata, rpc_id)


def complete_frame(hub_task: str, final: FinalEvent, rpc_id: RpcId) -> Frame:
    """`task.complete` with the whole text, the structured result and the final's metadata."""
    parts: list[Frame] = [{"type": "text", "text": final.text or (final.reason or "" if final.error else "")}]
    if final.data is not None:
        parts.append(_data_part(hub_task, final.data))
    more = {"error": final.error, "reason": final.reason, "usage": final.usage}
    metadata = {**final.metadata, **{name: value for name, value in more.items() if value is not None}}
    return _task_frame("task.complete", hub_task, final.state, parts, metadata, rpc_id)


def _task_frame(method: str, hub_task: str, state: TaskState, parts: list[Frame], metadata: Frame, rpc_id: RpcId) -> Frame:
    params: Frame = {
        "task_id": hub_task,
        "status": {"state": state.value, "message": {"role": "agent", "parts": parts}},
        "final": state.is_final,
    }
    if metadata:
        params["metadata"] = metadata
    return call_frame(method, params, rpc_id)


def _data_part(hub_task: str, payload: JsonValue) -> Frame:
    return {"type": "data", "data": {"component": "artifact", "id": hub_task, "payload": payload}}
