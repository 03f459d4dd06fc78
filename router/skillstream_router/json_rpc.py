"""JSON-RPC 2.0, as the hub's connector and the gateway's sockets speak it: codes, ids and frames. No I/O."""

from __future__ import annotations

from typing import Any, TypeGuard

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
SERVER_ERROR = -32000
"""The specification leaves the meaning of this one to the server."""
BAD_ID = "the id is neither a string nor an integer, or too long"
NO_OBJECT = "not one JSON-RPC 2.0 object"
NEITHER = "neither a call nor an answer"
_ID_CHARS = 256

RpcId = str | int
Frame = dict[str, Any]


def is_id(value: Any) -> TypeGuard[RpcId | None]:
    """True for what a frame may have as its id; None is none."""
    return not isinstance(value, bool) and isinstance(value, str | int | None) and len(str(value)) <= _ID_CHARS


def call_frame(method: str, params: Frame, rpc_id: RpcId | None = None) -> Frame:
    """A request, or a notification without an id."""
    if rpc_id is None:
        return {"jsonrpc": "2.0", "method": method, "params": params}
    return {"jsonrpc": "2.0", "id": rpc_id, "method": method, "params": params}


def result_frame(rpc_id: RpcId, result: Frame) -> Frame:
    """The answer to a request."""
    return {"jsonrpc": "2.0", "id": rpc_id, "result": result}


def error_frame(rpc_id: RpcId | None, code: int, message: str, data: Frame | None = None) -> Frame:
    """The answer to a request that failed; `data` has the stable code where the error is one of ours."""
    error: Frame = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": rpc_id, "error": error}
