"""Errors that only the HTTP gateway answers with; the rest of the tree stands in errors.py."""

from __future__ import annotations

from .errors import InvalidRequest, SkillstreamError


class Unauthorized(SkillstreamError):
    """The request has no valid API key, and no read token for what it asks."""

    code = "unauthorized"
    hint = "send Authorization: Bearer KEY; skillstream keys create makes a key"


class OpenGateway(SkillstreamError):
    """The HTTP gateway would listen beyond this machine while there is no API key: anyone could submit."""

    code = "open_gateway"
    hint = "make a key first (skillstream keys create --payer NAME), or listen on 127.0.0.1"


class ForeignHost(SkillstreamError):
    """An open gateway answers only requests that name this machine: a web page must not reach it under another name."""

    code = "foreign_host"
    hint = "use http://127.0.0.1, or make an API key; pages of other origins are let in by http_cors"


class EventsGone(SkillstreamError):
    """The events behind this cursor are no longer kept."""

    code = "gap"
    hint = "GET /v1/tasks/{id} has the outcome as long as the database keeps it"


class UnknownContext(SkillstreamError):
    """There is no such context."""

    code = "unknown_context"
    hint = "a context begins with the first task that names it"


class UnknownKey(SkillstreamError):
    """There is no API key of this id that could be revoked."""

    code = "unknown_key"
    hint = "skillstream keys list shows all"


class MalformedJson(InvalidRequest):
    """The body is not JSON."""

    code = "malformed_json"
    hint = "send one JSON object in UTF-8"


class BodyTooLarge(InvalidRequest):
    """The body is larger than the gateway takes."""

    code = "body_too_large"
    hint = "http_body_bytes is the limit; put large input where the skill can fetch it and send a reference"


class MalformedHttp(InvalidRequest):
    """What came in is no HTTP/1.1 request."""

    code = "malformed_http"
    hint = "another protocol was spoken, or a proxy broke the request; the connection is closed"


class HeadersTooLarge(InvalidRequest):
    """Request line and headers are longer than the gateway takes."""

    code = "headers_too_large"
    hint = "32 KiB are the limit; large input belongs into the body"


class RequestTimeout(InvalidRequest):
    """The request did not come whole in time."""

    code = "request_timeout"
    hint = "send the headers within 20 s and the body within 60 s"


class GatewayBusy(SkillstreamError):
    """The gateway has as many connections, or bytes of bodies, as its settings allow."""

    code = "gateway_busy"
    hint = "ask again shortly; http_connections and http_bodies_bytes are the limits"


class UnsupportedMedia(InvalidRequest):
    """The body is of another type than application/json."""

    code = "unsupported_media_type"
    hint = "send content-type: application/json"


class AddressInUse(SkillstreamError):
    """The address for HTTP cannot be listened on."""

    code = "address_in_use"
    hint = "another process has it, or it is no address of this machine; --http HOST:PORT names another"


class AttemptRestarted(SkillstreamError):
    """A newer attempt took text back that was told already, which this protocol cannot say.

    The first `keep` code points of the text stand; attempt `attempt` goes on behind them.
    """

    code = "attempt_restarted"
    hint = "the run goes on: ask for its result, or read it again from the start"

    def __init__(self, attempt: int, keep: int) -> None:
        self.attempt, self.keep = attempt, keep
        super().__init__(f"attempt {attempt} started the text again; its first {keep} characters stand")


class GatewayStopping(SkillstreamError):
    """The gateway stops; the run goes on."""

    code = "gateway_stopping"
    hint = "ask again, another gateway or the same one answers soon"
