"""Errors in OpenAI's shape, `{"error": {"message", "type", "param", "code"}}`, on the paths where its clients look for it."""

from __future__ import annotations

from typing import Any

from skillstream_schemas.errors import FailureCode
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.state import TaskState

_PATHS = ("/v1/chat/", "/v1/models", "/v1/responses")
_CODES = {"unauthorized": "invalid_api_key", "unknown_agent": "model_not_found", "unknown_skill": "model_not_found"}
"""Where OpenAI has a code of its own for a cause, its clients look for that."""
_TIMED_OUT = frozenset({FailureCode.TIMEOUT, FailureCode.DEADLINE_EXCEEDED, FailureCode.EXPIRED})


def speaks_openai(path: str) -> bool:
    """True for the paths of OpenAI's API."""
    return path.startswith(_PATHS)


def error_body(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """What `error` holds; `param` names the field of the request that is wrong."""
    code = _CODES.get(code, code)
    kind = "rate_limit_error" if status == 429 else "server_error" if status >= 500 else "invalid_request_error"
    return {"message": message, "type": kind, "param": "model" if code == "model_not_found" else param, "code": code}


def run_status(final: FinalEvent) -> int:
    """The HTTP status that tells of a run without a result."""
    if final.state is TaskState.CANCELED:
        return 409
    return 504 if final.error in _TIMED_OUT else 500


def run_error(final: FinalEvent) -> dict[str, Any]:
    """What `error` holds for a run that failed or was cancelled."""
    if final.state is TaskState.CANCELED:
        return {"message": final.reason or "the run was canceled", "type": "canceled", "param": None, "code": "canceled"}
    return error_body(500, final.error or "skill_error", final.reason or f"the run failed: {final.error}")
