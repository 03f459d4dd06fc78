"""Readers that take nothing, and sockets that are flooded, are let go with their connections, and nobody else waits."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import struct
from contextlib import suppress

import pytest

from skillstream.clock import Clock
from skillstream_router import web_server
from skillstream_router.app import Router
from skillstream_router.http import stall_watch
from skillstream_router.http.stall_watch import StallWatch
from skillstream_schemas.settings import Settings
from tests.client.hand_worker import HandWorker
from tests.router.eventually import eventually

from .conftest import PATIENCE_S, StartGateway, caller
from .test_connections import Line, line

pytestmark = pytest.mark.guarantee("G13")
PING, TEXT, CONTINUATION, CLOSE = 9, 1, 0, 8


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """A frame of a caller's, masked with zeros."""
    length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack(">H", len(payload))
    return bytes([(0x80 if fin else 0) | opcode]) + length + b"\0\0\0\0" + payload


async def upgrade(opened: Line, path: str, more: bytes = b"") -> None:
    key = base64.b64encode(os.urandom(16))
    opened.writer.write(
        b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" % path.encode()
        + b"Sec-WebSocket-Key: %b\r\nSec-WebSocket-Version: 13\r\n%b\r\n" % (key, more)
    )


async def close_code(opened: Line) -> int:
    """The code with which the gateway closes a socket."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            first, length = await opened.reader.readexactly(2)
            if length == 126:
                (length,) = struct.unpack(">H", await opened.reader.readexactly(2))
            payload = await opened.reader.readexactly(length)
            if first & 15 == CLOSE:
                return int(struct.unpack(">H", payload[:2])[0])


def large(hand: HandWorker) -> None:
    hand.submit("t")
    hand.open("t")
    for start in range(0, 1500, 100):
        hand.say("t", *["x" * 10_000] * 100, seq=2 + start)


def connections(gateway: Router) -> int:
    assert gateway.http is not None
    assert gateway.http._server is not None
    return len(gateway.http._server.server_state.connections)


async def start_reading(opened: Line, way: str) -> None:
    """Asks for a large task's events, sees the first and takes nothing more."""
    opened.reader._limit = 1024  # type: ignore[attr-defined]
    if way == "sse":
        opened.writer.write(b"GET /v1/tasks/t/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        await asyncio.wait_for(opened.reader.readuntil(b"id: 0-1"), PATIENCE_S)
    else:
        await upgrade(opened, "/v1/tasks/t/ws")
        await asyncio.wait_for(opened.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)


@pytest.mark.parametrize("way", ["sse", "ws"])
async def test_a_reader_that_takes_nothing_is_let_go_with_its_connection(
    start_gateway: StartGateway, hand: HandWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    monkeypatch.setattr(stall_watch, "STALL_S", 0.4)
    gateway = await start_gateway()
    large(hand)
    caplog.set_level(logging.INFO)
    async with line(gateway) as opened:
        await start_reading(opened, way)
        await eventually(lambda: connections(gateway) == 0, "the connection is gone")
    told = [record.getMessage() for record in caplog.records if record.name.startswith("skillstream_router.http")]
    assert [text.partition(":")[0] for text in told] == ["let a reader go"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class _Slow:
    """A connection whose reader takes one byte between two looks."""

    def __init__(self) -> None:
        self.transport = self
        self.drains, self.is_write_paused, self.size, self.aborted, self.closing = 0, True, 1000, False, False

    def get_write_buffer_size(self) -> int:
        return self.size

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True


class _Set(Clock):
    now_s = 0.0

    def elapsed_s(self) -> float:
        return self.now_s


def test_only_who_takes_nothing_at_all_is_let_go() -> None:
    slow, refilled, stalled, idle, closed = (_Slow() for _ in range(5))
    idle.is_write_paused, closed.closing = False, True
    clock = _Set()
    watch = StallWatch([slow, refilled, stalled, idle, closed], clock, stall_s=60)
    for now_s in range(0, 70, 10):
        clock.now_s = float(now_s)
        slow.size -= 1
        refilled.drains += 1
        watch.look()
        assert closed.aborted is (now_s >= 10)
        assert stalled.aborted is (now_s >= 60)
    assert not slow.aborted
    assert not refilled.aborted
    assert not idle.aborted


async def test_a_gateway_stops_in_time_whoever_does_not_read(
    http_settings: Settings, hand: HandWorker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(web_server, "STOP_S", 6 * PATIENCE_S)  # what the readers' connections are not waited for
    router = Router(http_settings)
    await router.start()
    large(hand)
    async with line(router) as first, line(router) as second, line(router) as third:
        await start_reading(first, "ws")
        await start_reading(second, "sse")
        await upgrade(third, "/v1/hub")
        await asyncio.wait_for(third.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        await asyncio.wait_for(router.__aexit__(), PATIENCE_S)
        assert await close_code(third) in (1001, 1012)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    "flood", [frame(PING), frame(PING, b"x" * 100), frame(CONTINUATION, fin=False)], ids=["empty", "ping", "fragment"]
)
async def test_a_flood_of_small_frames_closes_its_socket_and_holds_up_nobody(gateway: Router, flood: bytes) -> None:
    async with line(gateway) as opened, caller(gateway) as http:
        await upgrade(opened, "/v1/hub")
        await asyncio.wait_for(opened.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        with suppress(ConnectionError):
            opened.writer.write(frame(TEXT, b"a", fin=False) + flood * 300)
            assert (await http.get("/healthz")).status_code == 200
            opened.writer.write(flood * 100_000)
            assert await opened.is_closed()
        await eventually(lambda: connections(gateway) == 1, "only the other caller is left")


async def test_small_frames_in_reason_are_taken(gateway: Router) -> None:
    async with line(gateway) as opened:
        await upgrade(opened, "/v1/hub")
        text = b'{"jsonrpc":"2.0","id":7,"method":"heartbeat"}'
        opened.writer.write(frame(PING) * 100 + frame(TEXT, text[:5], fin=False) + frame(CONTINUATION, text[5:]))
        opened.writer.write(frame(TEXT, text) * 2000)
        async with asyncio.timeout(3 * PATIENCE_S):
            for _ in range(2001):
                await opened.reader.readuntil(b'"id":7')


async def test_text_that_is_no_text_closes_with_its_code_and_no_traceback(
    gateway: Router, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with line(gateway) as opened:
        await upgrade(opened, "/v1/hub")
        await asyncio.wait_for(opened.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        opened.writer.write(frame(TEXT, b"\xff\xfe"))
        assert await close_code(opened) == 1007
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info]


async def test_a_handshake_that_fails_is_refused_in_our_shape(gateway: Router) -> None:
    for path, more, expected in (
        ("/v1/nowhere", b"", (404, "not_found")),
        ("/v1/hub", b"Sec-WebSocket-Version: 7\r\n", (400, "malformed_http")),
        ("/v1/hub", b"x: " + b"y" * 10_000 + b"\r\n", (431, "headers_too_large")),
        ("/v1/hub", b"x: y\r\n" * 200, (431, "headers_too_large")),
    ):
        async with line(gateway) as opened:
            await upgrade(opened, path, more)
            assert await opened.answer() == expected
            assert await opened.is_closed()
