"""JSON-RPC 2.0 as callers speak it over a WebSocket: calls in, answers and errors out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skillstream_router.json_rpc import (
    BAD_ID,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NEITHER,
    NO_OBJECT,
    PARSE_ERROR,
    SERVER_ERROR,
    RpcId,
    call_frame,
    error_frame,
    is_id,
    result_frame,
)
from skillstream_schemas.errors import MalformedEntry, SkillstreamError
from skillstream_schemas.json_text import check_values, json_text
from skillstream_schemas.request import read_json

from .failures import shown


@dataclass(frozen=True, slots=True)
class Call:
    """A request; a notification, which is not answered, where `id` is None."""

    method: str
    params: dict[str, Any]
    id: RpcId | None


class RpcError(Exception):
    """What a frame is refused with; it stays on the socket."""

    def __init__(self, code: int, message: str, rpc_id: RpcId | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.rpc_id = code, message, rpc_id


def read_call(text: str) -> Call | None:
    """The call in a frame; None for an answer to a frame of ours, which needs none. Raises RpcError."""
    try:
        check_values(text)
        frame = read_json("frame", text)
    except (ValueError, MalformedEntry) as error:
        raise RpcError(PARSE_ERROR, str(error)[:200]) from None
    if not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, NO_OBJECT)
    rpc_id = frame.get("id")
    if not is_id(rpc_id):
        raise RpcError(INVALID_REQUEST, BAD_ID)
    method, params = frame.get("method"), frame.get("params", {})
    if method is None and ("result" in frame or "error" in frame):
        return None
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, NEITHER, rpc_id)
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params is not an object", rpc_id)
    return Call(method, params, rpc_id)


def result_text(rpc_id: RpcId, result: dict[str, Any]) -> str:
    """The answer to a call."""
    return json_text(result_frame(rpc_id, result))


def notification_text(method: str, params: dict[str, Any]) -> str:
    """A call that needs no answer."""
    return json_text(call_frame(method, params))


def error_text(error: RpcError | SkillstreamError, rpc_id: RpcId | None = None) -> str:
    """The answer to a call that failed; an error of ours has its code and message in `data`."""
    if isinstance(error, RpcError):
        return json_text(error_frame(rpc_id, error.code, error.message))
    told = shown(error)
    return json_text(error_frame(rpc_id, SERVER_ERROR, told["message"], told))
