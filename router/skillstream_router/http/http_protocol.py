"""One HTTP connection, within bounds: uvicorn's protocol over httptools has none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.gateway_errors import GatewayBusy, HeadersTooLarge, MalformedHttp, RequestTimeout

from .cors import Cors
from .refusal import refusal_bytes

log = logging.getLogger(__name__)

_HEAD_BYTES = 32 * 1024
"""Request line and headers; and what frames a body, from one piece of it to the next."""
_PIECE_BYTES = 4 * 1024
_AHEAD_BYTES = 64 * 1024
"""Requests kept unread while another one is being answered: read, so that a caller who leaves is noticed."""
_SPARE_CONNECTIONS = 128
"""Connections over the limit that are told so; further ones are cut."""
_LINGER_BYTES = 1024 * 1024
_HEAD_END = b"\r\n\r\n"


class _Wait(Enum):
    """What a connection may keep the gateway waiting for, with a deadline."""

    HEAD = "head"
    DRAIN = "drain"
    LINGER = "linger"


_DEADLINE_S: Mapping[_Wait, float] = {_Wait.HEAD: 20.0, _Wait.DRAIN: 10.0, _Wait.LINGER: 1.0}


class _Flow(FlowControl):
    """Reads on, whoever asks for it, only where little is unread: each read brings more than one request takes."""

    def __init__(self, transport: asyncio.Transport, unread: bytearray) -> None:
        super().__init__(transport)
        self._unread = unread

    def resume_reading(self) -> None:
        if len(self._unread) <= _AHEAD_BYTES:
            super().resume_reading()


class HttpProtocol(HttpToolsProtocol):
    """Responsible for one connection: parses one request at a time, and refuses by itself what is over a bound.

    `cors` says which pages may read a refusal, None where no page may. The settings come with the configuration of uvicorn:
    `limit_concurrency` connections, `ws_max_size` bytes of a body.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        cors: Cors | None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._cors = cors
        self._inner: Any = self.app
        self.app: Any = self._answer
        self._most_connections, self.limit_concurrency = self.limit_concurrency, None  # the base's answer has no code
        self.drains = 0
        self._unread = bytearray()
        self._end_of_last = b""
        self._in_head = True
        self._framing_bytes = 0
        self._body_left_bytes = 0
        self._dropped_bytes = 0
        self._is_over = False
        self._refusal: SkillstreamError | None = None
        self._wait: _Wait | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a connection; one over the limit is answered that, if not too many are."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self._unread)
        over = 0 if self._most_connections is None else len(self.connections) - self._most_connections
        self._is_over = over > 0
        if over > _SPARE_CONNECTIONS:
            transport.abort()
        self._wait_for(_Wait.HEAD)

    @property
    def is_write_paused(self) -> bool:
        """True while more waits for the reader than should."""
        return self.flow.write_paused

    def resume_writing(self) -> None:
        """Writes on: the reader caught up."""
        self.drains += 1
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets what was kept for the connection."""
        self._wait_for(None)
        self._unread.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Takes what came in; it is parsed as far as requests are answered."""
        self._unset_keepalive_if_required()
        if self._refusal is not None:  # read until the other side has read the answer: a close would take it away
            self._drop(len(data), _LINGER_BYTES)
            return
        self._unread += data
        self._parse()

    def _parse(self) -> None:
        while self._unread and not self._is_answering and not self.transport.is_closing():
            piece = self._next_piece()
            self._framing_bytes += len(piece)
            try:
                self.parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                if self._should_upgrade() and self._refusal is None:
                    self._wait_for(None)
                    self.handle_websocket_upgrade()
                    if self._unread:  # it did not wait for the answer
                        cast(asyncio.Protocol, self.transport.get_protocol()).data_received(bytes(self._unread))
                    return
            except httptools.HttpParserError:
                self._refusal = self._refusal or MalformedHttp("this is no HTTP/1.1 request")
            if self._framing_bytes > _HEAD_BYTES:
                self._refusal = self._refusal or HeadersTooLarge(f"request line and headers have more than {_HEAD_BYTES} bytes")
            if self._refusal is not None:
                self._refuse(self._refusal)
                return
        if len(self._unread) > _AHEAD_BYTES:
            self.flow.pause_reading()
        elif self._unanswered is None:
            self.flow.resume_reading()
        self._look_at_clock()

    def _next_piece(self) -> bytes:
        """What the parser gets next: never the end of one request with the begin of another."""
        if not self._in_head:
            size = self._body_left_bytes or _PIECE_BYTES
        else:
            before = self._end_of_last
            found = (before + self._unread[:_HEAD_BYTES]).find(_HEAD_END)
            size = _HEAD_BYTES if found < 0 else found + len(_HEAD_END) - len(before)
        piece = bytes(self._unread[:size])
        del self._unread[:size]
        if self._in_head:
            self._end_of_last = (self._end_of_last + piece)[1 - len(_HEAD_END) :]
        return piece

    @property
    def _is_answering(self) -> bool:
        """True if a whole request is here and its answer is not out."""
        return self._in_head and self._unanswered is not None

    @property
    def _unanswered(self) -> RequestResponseCycle | None:
        """The request whose answer is not out."""
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first
        return None if cycle is None or cycle.response_complete else cycle

    def on_message_begin(self) -> None:
        """Begins a request; raises where one came in the last piece of another, which nobody needs."""
        if self._is_answering:
            raise ValueError("the request before is not answered")
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a header; what comes behind a body is none, and nothing here reads it."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Starts the answer."""
        self._in_head, self._end_of_last = False, b""
        lengths = [value for name, value in self.headers if name == b"content-length"]
        self._body_left_bytes = int(lengths[0]) if lengths else 0
        self._dropped_bytes = 0
        if self._is_over:
            self._refusal = GatewayBusy(f"{self._most_connections} connections are open")
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a piece of a body; of one that is answered already, so many bytes as a body may have."""
        self._framing_bytes = 0
        self._body_left_bytes = max(0, self._body_left_bytes - len(body))
        if self._refusal is not None:
            return
        if self._unanswered is None:
            self._drop(len(body), self.config.ws_max_size)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends a request."""
        self._in_head, self._framing_bytes = True, 0
        if self._refusal is None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Goes on with the request that came meanwhile."""
        super().on_response_complete()
        if self._unread and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self.loop.call_soon(self._parse)
        self._look_at_clock()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self.cycle
        try:
            await self._inner(scope, receive, send)
        except asyncio.CancelledError:  # the gateway stops, and this answer took too long
            pass
        if not cycle.response_complete and not cycle.disconnected:
            log.info("let a reader go: it took nothing of its answer any more")
            cycle.disconnected = True
            self.transport.abort()  # a close would wait until it has read what was written

    def _refuse(self, error: SkillstreamError) -> None:
        self._unread.clear()
        if self._unanswered is not None:
            self.transport.abort()  # an answer is under way: a second one would stand in it
            return
        path = bytes(getattr(self, "url", b"")[:1024]).decode("latin-1")
        origin = next((value.decode("latin-1") for name, value in getattr(self, "headers", ()) if name == b"origin"), None)
        read_by = (
            [] if origin is None or self._cors is None else self._cors.headers_for(origin)
        )  # a page is to know that it may come back
        self.transport.write(refusal_bytes(error, path, (*self.server_state.default_headers, *read_by)))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._wait_for(_Wait.LINGER)

    def _drop(self, size_bytes: int, limit_bytes: int) -> None:
        self._dropped_bytes += size_bytes
        if self._dropped_bytes > limit_bytes:
            self.transport.abort()

    def _look_at_clock(self) -> None:
        if self._in_head:
            self._wait_for(_Wait.HEAD if self._framing_bytes and not self._is_answering else None)
        else:  # the time for a body that is still wanted is the body guard's
            self._wait_for(_Wait.DRAIN if self._unanswered is None else None)

    def _wait_for(self, wait: _Wait | None) -> None:
        if wait is self._wait:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._wait = wait
        self._deadline = None if wait is None else self.loop.call_later(_DEADLINE_S[wait], self._late)

    def _late(self) -> None:
        if self._wait is _Wait.HEAD and self._framing_bytes:
            self._refusal = RequestTimeout(f"the headers did not come within {_DEADLINE_S[_Wait.HEAD]:g} s")
            self._refuse(self._refusal)
        else:
            self.transport.abort()
