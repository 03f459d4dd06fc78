"""One WebSocket connection, within bounds: what comes in is parsed in small turns, and only as it is taken."""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.frames import CloseCode, Frame
from websockets.http11 import Response
from websockets.server import ServerProtocol

from skillstream_schemas.gateway_errors import HeadersTooLarge

from .refusal import refusal_bytes

log = logging.getLogger(__name__)

_PIECE_BYTES = 1024
_TURN_S = 0.002
"""Others wait so long at most until this socket's input is put back."""
_SMALL_BYTES = 64
_SMALL_PER_S = 500
"""Pings, pongs and small fragments of messages in a second: they cost time and carry nothing."""
_FRAGMENTS = 4096
"""Fragments of one message, empty ones too."""


class SocketProtocol(WebSocketsSansIOProtocol):
    """Responsible for one socket: no more is parsed than the session takes, none holds up the loop, abuse closes it."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.conn = _Handshake(max_size=config.ws_max_size, logger=self.logger)
        self._inner: Any = self.app
        self.app: Any = self._serve
        self.drains = 0
        self._unread = bytearray()
        self._turn: asyncio.Handle | None = None
        self._fault: tuple[CloseCode, str] | None = None
        self._small = 0
        self._small_since_s = 0.0

    def data_received(self, data: bytes) -> None:
        """Takes what came in."""
        self._unread += data
        if self._turn is None:
            self._parse()

    @property
    def is_write_paused(self) -> bool:
        """True while more waits for the reader than should."""
        return not self.writable.is_set()

    def resume_writing(self) -> None:
        """Writes on: the reader caught up."""
        self.drains += 1
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets what was kept for the connection."""
        self._unread.clear()
        if self._turn is not None:
            self._turn.cancel()
        super().connection_lost(exc)

    def _parse(self) -> None:
        self._turn = None
        until_s = self.loop.time() + _TURN_S
        while self._unread and not self._is_held and not self.transport.is_closing():
            if self.loop.time() > until_s:
                self._turn = self.loop.call_soon(self._parse)
                break
            size = _PIECE_BYTES if self.handshake_initiated else len(self._unread)
            self.conn.receive_data(bytes(self._unread[:size]))
            del self._unread[:size]
            if self.conn.parser_exc is None:
                self.handle_events()
                if not self.handshake_initiated:
                    self._refuse_handshake()
                if self._fault is not None:
                    self.conn.fail(*self._fault)
            if self.conn.parser_exc is not None or self._fault is not None:
                self._unread.clear()
                self.handle_parser_exception()
                return
        self._steer()

    @property
    def _is_held(self) -> bool:
        """True while the session has not taken what was parsed."""
        return not self.close_sent and not self.queue.empty()

    def _steer(self) -> None:
        """Reads on only when all that was read is taken."""
        pause = bool(self._unread) or self._is_held
        if pause is self.read_paused or self.transport.is_closing():
            return
        self.read_paused = pause
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    async def receive(self) -> Any:
        """The next message for the session."""
        message = await self.queue.get()
        if self.queue.empty():
            if self._unread and self._turn is None:
                self._turn = self.loop.call_soon(self._parse)
            self._steer()
        return message

    def handle_ping(self) -> None:
        """Answers a ping, unless the other side does not read: pongs would pile up."""
        self._count_small()
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_pong(self, event: Frame) -> None:
        """Takes a pong."""
        self._count_small()
        super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        """Takes a fragment of a message."""
        if len(event.data) < _SMALL_BYTES:
            self._count_small()
        if len(self.frames) >= _FRAGMENTS:
            self._fault = (CloseCode.POLICY_VIOLATION, f"a message has more than {_FRAGMENTS} fragments")
            return
        super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Hands a whole message to the session."""
        data, self.frames = b"".join(self.frames), []
        if self.close_sent or self._fault is not None:
            return
        if self.curr_msg_data_type == "bytes":
            self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
            return
        try:
            self.queue.put_nowait({"type": "websocket.receive", "text": data.decode()})
        except UnicodeDecodeError:
            self._fault = (CloseCode.INVALID_DATA, "the text is not UTF-8")

    def handle_parser_exception(self) -> None:
        """Closes the socket for what came in."""
        assert self.conn.close_sent is not None
        log.info("closed a socket with %d: %s", self.conn.close_sent.code, self.conn.close_sent.reason)
        super().handle_parser_exception()

    def _count_small(self) -> None:
        now_s = self.loop.time()
        if now_s - self._small_since_s > 1:
            self._small, self._small_since_s = 0, now_s
        self._small += 1
        if self._small > _SMALL_PER_S:
            self._fault = (CloseCode.POLICY_VIOLATION, f"more than {_SMALL_PER_S} small frames in a second")

    def _refuse_handshake(self) -> None:
        # its limits of lines are narrower than those of the HTTP that came before
        error = HeadersTooLarge("a header of the handshake is too long, or there are too many")
        self.transport.write(refusal_bytes(error, "", self.default_headers))
        self.transport.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._inner(scope, receive, send)
        except asyncio.CancelledError:  # the gateway stops, and this socket took too long
            self.transport.abort()
            await asyncio.sleep(0)  # then the connection is lost
        if self.initial_response is not None:
            self.handshake_complete = True  # refused with an answer; uvicorn would log that none was given


class _Handshake(ServerProtocol):
    """Refuses in the gateway's error shape."""

    def reject(self, status: int, text: str) -> Response:
        """The answer to a handshake that failed, to a path that is none, or to one that brought about a fault."""
        if status == HTTPStatus.FORBIDDEN and not text:  # nothing else refuses without a word
            status, code, text = HTTPStatus.NOT_FOUND, "not_found", "Not Found"
        else:
            code = "internal_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "malformed_http"
        response = super().reject(status, json.dumps({"error": {"code": code, "message": text.strip()}}))
        headers = Headers(response.headers)
        del headers["content-type"]
        headers["content-type"] = "application/json"
        response.headers = headers
        return response
