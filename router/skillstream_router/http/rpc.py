"""JSON-RPC 2.0 as callers speak it over a WebSocket: calls in, answers and errors out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from skillstream_schemas.errors import MalformedEntry, SkillstreamError
from skillstream_schemas.json_text import check_values
from skillstream_schemas.request import read_json

from .failures import shown
from .frames import written

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, FAILED = -32700, -32600, -32601, -32602, -32000
_ID_CHARS = 256

RpcId = str | int | None


@dataclass(frozen=True, slots=True)
class Call:
    """A request; a notification, which is not answered, where `id` is None."""

    method: str
    params: dict[str, Any]
    id: RpcId


class RpcError(Exception):
    """What a frame is refused with; it stays on the socket."""

    def __init__(self, code: int, message: str, rpc_id: RpcId = None) -> None:
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
        raise RpcError(INVALID_REQUEST, "not one JSON-RPC 2.0 object")
    rpc_id = frame.get("id")
    if isinstance(rpc_id, bool) or not isinstance(rpc_id, str | int | None) or len(str(rpc_id)) > _ID_CHARS:
        raise RpcError(INVALID_REQUEST, "the id is neither a string nor an integer, or too long")
    method, params = frame.get("method"), frame.get("params", {})
    if method is None and ("result" in frame or "error" in frame):
        return None
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "neither a call nor an answer", rpc_id)
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "params is not an object", rpc_id)
    return Call(method, params, rpc_id)


def result_text(rpc_id: RpcId, result: dict[str, Any]) -> str:
    """The answer to a call."""
    return written({"jsonrpc": "2.0", "id": rpc_id, "result": result})


def notification_text(method: str, params: dict[str, Any]) -> str:
    """A call that needs no answer."""
    return written({"jsonrpc": "2.0", "method": method, "params": params})


def error_text(error: RpcError | SkillstreamError, rpc_id: RpcId = None) -> str:
    """The answer to a call that failed; an error of ours has its code and message in `data`."""
    if isinstance(error, RpcError):
        body: dict[str, Any] = {"code": error.code, "message": error.message}
    else:
        told = shown(error)
        body = {"code": FAILED, "message": told["message"], "data": told}
    return written({"jsonrpc": "2.0", "id": rpc_id, "error": body})
