"""Errors as HTTP answers: `{"error": {"code", "message"}}` with the codes of docs/errors.md, OpenAI's shape on its paths."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from skillstream_schemas import errors, gateway_errors
from skillstream_schemas.errors import InvalidRequest, SkillstreamError

from .openai.error_shape import error_body, speaks_openai

log = logging.getLogger(__name__)

_STATUS: Mapping[type[SkillstreamError], int] = {
    gateway_errors.Unauthorized: 401,
    gateway_errors.ForeignHost: 403,
    gateway_errors.EventsGone: 410,
    gateway_errors.AttemptRestarted: 410,
    gateway_errors.GatewayStopping: 503,
    gateway_errors.UnknownContext: 404,
    gateway_errors.MalformedJson: 400,
    gateway_errors.MalformedHttp: 400,
    gateway_errors.RequestTimeout: 408,
    gateway_errors.HeadersTooLarge: 431,
    gateway_errors.GatewayBusy: 503,
    gateway_errors.BodyTooLarge: 413,
    gateway_errors.UnsupportedMedia: 415,
    errors.MessageTooLarge: 413,
    errors.InvalidRequest: 422,
    errors.UnknownAgent: 404,
    errors.UnknownSkill: 404,
    errors.UnknownTask: 404,
    errors.TaskIdTaken: 409,
    errors.StreamGap: 410,
    errors.StreamLost: 410,
    errors.ResultTimeout: 504,
    errors.BrokerUnavailable: 503,
    errors.DatabaseUnavailable: 503,
}
_PLACES = 5
_RETRY_AFTER_S = 2
_OURS: Mapping[type[SkillstreamError], str] = {
    errors.BrokerUnavailable: "the broker cannot be reached just now; ask again in a moment",
    errors.BrokerRefused: "the broker did not take this; the gateway's log has the details",
    errors.NotReplicated: "the broker did not take this; the gateway's log has the details",
    errors.DatabaseUnavailable: "the database cannot be reached just now; ask again in a moment",
    errors.DatabaseRefused: "the database did not take this; the gateway's log has the details",
}
"""Faults on our side, in words without addresses and commands: those are the operator's, and stand in the log."""


def status_of(error: SkillstreamError) -> int:
    """The HTTP status of an error; 500 for one that no request should bring about."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), 500)


def shown(error: SkillstreamError) -> dict[str, str]:
    """Code and message of an error, as every face shows them; what callers need not know is logged instead."""
    ours = next((_OURS[kind] for kind in type(error).__mro__ if kind in _OURS), None)
    if ours is not None:
        log.warning("told a caller of %s: %s", error.code, error.message)
        return {"code": error.code, "message": ours}
    hint = f" ({error.hint})" if error.hint else ""
    return {"code": error.code, "message": f"{error.message}{hint}"}


def answer(error: SkillstreamError, path: str = "", param: str | None = None) -> Response:
    """The answer to a request to `path` that failed; `param` names the field that is wrong."""
    headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": str(_RETRY_AFTER_S)}}
    status = status_of(error)
    if status >= 500 and not isinstance(error, tuple(_OURS)):
        log.warning("answered %d: %s", status, error)
    return _answer(status, shown(error), headers.get(status), path, param)


def invalid(error: RequestValidationError) -> SkillstreamError:
    """What a request that does not fit its endpoint's model is refused with; no input values, they may be private or huge."""
    found = error.errors()
    if any(problem["type"] == "json_invalid" for problem in found):
        return gateway_errors.MalformedJson()
    places = (
        f"{'.'.join(str(part)[:40] for part in problem['loc'][1:_PLACES]) or 'body'}: {problem['msg']}" for problem in found
    )
    return InvalidRequest("; ".join(places)[:500])


def install(app: FastAPI) -> None:
    """Has an app answer all errors in our shape."""

    @app.exception_handler(SkillstreamError)
    async def _ours(request: Request, error: SkillstreamError) -> Response:
        return answer(error, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def _validation(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]["loc"][1:_PLACES]
        return answer(invalid(error), request.url.path, ".".join(str(part)[:40] for part in first) or None)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400:
            return answer(gateway_errors.MalformedJson(), request.url.path)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        told = {"code": code, "message": str(error.detail)}
        return _answer(error.status_code, told, error.headers, request.url.path)

    @app.exception_handler(Exception)
    async def _unexpected(request: Request, _error: Exception) -> Response:
        told = {"code": "internal_error", "message": "this is a fault of the gateway; its log has the details"}
        return _answer(500, told, None, request.url.path)


def _answer(
    status: int, error: Mapping[str, str], headers: Mapping[str, str] | None, path: str, param: str | None = None
) -> Response:
    if speaks_openai(path):
        status = 400 if status == 422 else status
        told: Mapping[str, object] = error_body(status, error["code"], error["message"], param)
        if status == 409:
            headers = {**(headers or {}), "x-should-retry": "false"}  # its clients send a conflict again by themselves
    else:
        told = error
    body = json.dumps({"error": told}, ensure_ascii=False)
    return Response(body.encode(errors="replace"), status, headers, media_type="application/json")
