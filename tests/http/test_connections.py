"""Callers without any key: what they make the gateway keep is bounded, and each bound is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import parse_headers
from io import BytesIO

import pytest

from skillstream_router.app import Router
from skillstream_router.http import body_guard, http_protocol
from skillstream_router.http.http_protocol import HttpProtocol, _Wait
from skillstream_schemas.settings import Settings

from .conftest import CallerAs, StartGateway, make_key

pytestmark = pytest.mark.guarantee("G13")
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = b"POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
WAIT_S = 10.0
MIB = 1024 * 1024


class Line:
    """One connection, spoken byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Sends as far as the gateway takes it."""
        self.writer.write(data)
        try:
            async with asyncio.timeout(0.3):
                await self.writer.drain()
        except (TimeoutError, ConnectionError):
            pass

    async def answer(self) -> tuple[int, str]:
        """Status and code of the next answer."""
        async with asyncio.timeout(WAIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            first, _, rest = head.partition(b"\r\n")
            headers = parse_headers(BytesIO(rest))
            body = json.loads(await self.reader.readexactly(int(headers["content-length"] or 0)))
        return int(first.split()[1]), body.get("error", {}).get("code", "")

    async def is_closed(self) -> bool:
        """True if the gateway closes the connection in time."""
        try:
            async with asyncio.timeout(WAIT_S):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True


@asynccontextmanager
async def line(gateway: Router) -> AsyncIterator[Line]:
    assert gateway.http is not None
    reader, writer = await asyncio.open_connection(gateway.http.host, gateway.http.port)
    try:
        yield Line(reader, writer)
    finally:
        writer.transport.abort()


def served(gateway: Router) -> list[HttpProtocol]:
    """The HTTP connections of a gateway, as its server has them."""
    assert gateway.http is not None
    assert gateway.http._server is not None
    return [each for each in gateway.http._server.server_state.connections if isinstance(each, HttpProtocol)]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * 20_000,
        b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 100_000,
        b"GET /" + b"y" * 100_000,
    ],
    ids=["many", "long", "url"],
)
async def test_headers_without_an_end_are_refused(gateway: Router, head: bytes) -> None:
    async with line(gateway) as opened:
        await opened.send(head)
        assert await opened.answer() == (431, "headers_too_large")
        assert await opened.is_closed()


async def test_headers_within_the_bound_are_taken_piece_by_piece(gateway: Router) -> None:
    async with line(gateway) as opened:
        for number in range(len(HEALTH)):
            opened.writer.write(HEALTH[number : number + 1])
            await asyncio.sleep(0)
        assert await opened.answer() == (200, "")
        await opened.send(HEALTH[:-2] + b"x: " + b"y" * 30_000 + b"\r\n\r\n")
        assert await opened.answer() == (200, "")


async def test_what_stands_behind_a_body_without_an_end_is_cut(gateway: Router) -> None:
    async with line(gateway) as opened:
        await opened.send(POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"x: y\r\n" * 20_000)
        assert await opened.is_closed()


async def test_requests_wait_unread_while_one_is_answered(gateway: Router) -> None:
    async with line(gateway) as opened:
        await opened.send(HEALTH * 5)
        for _ in range(5):
            assert await opened.answer() == (200, "")
        for _ in range(6):
            await opened.send((POST + b"Content-Length: 2\r\n\r\n[]") * 10_000)
        (server,) = served(gateway)
        assert not server.pipeline
        assert http_protocol._AHEAD_BYTES < len(server._unread) < MIB
        server.flow.resume_reading()  # as the start of each answer does
        assert server.flow.read_paused


async def test_a_body_in_pieces_is_taken_and_the_next_request_with_it(gateway: Router) -> None:
    async with line(gateway) as opened:
        body = json.dumps({"agent": "nobody", "skill": "x", "message": "y" * 9000}).encode()
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:5000], body[5000:]))
        for framed in (
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body),
            b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n",
        ):
            await opened.send(POST + framed)
            assert await opened.answer() == (404, "unknown_agent")
        await opened.send(POST + b"Content-Length: %d\r\n\r\n%b" % (len(body), body) + HEALTH)
        assert await opened.answer() == (404, "unknown_agent")
        assert await opened.answer() == (200, "")


async def test_nobody_without_a_key_has_a_body_read(caller_as: CallerAs, gateway: Router) -> None:
    await caller_as("acme")
    async with line(gateway) as opened:
        await opened.send(POST + b"Content-Length: 1000\r\n\r\n")
        assert await opened.answer() == (401, "unauthorized")


async def test_nobody_from_another_page_has_a_body_read(gateway: Router) -> None:
    async with line(gateway) as opened:
        await opened.send(POST.replace(b"127.0.0.1", b"evil.example") + b"Content-Length: 1000\r\n\r\n")
        assert await opened.answer() == (403, "foreign_host")


async def test_a_body_that_is_refused_and_never_ends_is_cut(
    gateway: Router, http_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(http_protocol._DEADLINE_S, _Wait.DRAIN, 0.1)
    await make_key(http_settings, "acme")
    async with line(gateway) as opened:
        await opened.send(POST + b"Content-Length: 1000\r\n\r\n{")
        assert (await opened.answer())[0] == 401
        assert await opened.is_closed()


async def test_all_bodies_at_one_time_are_bounded(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(http_body_bytes=2048, http_bodies_bytes=4096)
    async with line(gateway) as first, line(gateway) as second, line(gateway) as third:
        for opened in (first, second):
            await opened.send(POST + b"Content-Length: 2048\r\n\r\n" + b" " * 2000)
        await third.send(HEALTH)
        await third.answer()  # by now the others' bodies are here
        await third.send(POST + b"Content-Length: 2048\r\n\r\n" + b" " * 2000)
        assert await third.answer() == (503, "gateway_busy")
        await first.send(b" " * 48)
        assert await first.answer() == (400, "malformed_json")
        await third.send(b" " * 48 + POST + b"Content-Length: 2048\r\n\r\n" + b" " * 2048)
        assert await third.answer() == (400, "malformed_json")


async def test_headers_and_bodies_have_a_time(gateway: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(http_protocol._DEADLINE_S, _Wait.HEAD, 0.2)
    monkeypatch.setattr(body_guard, "_BODY_S", 0.2)
    async with line(gateway) as slow, line(gateway) as silent:
        await slow.send(HEALTH[:-2])
        assert await slow.answer() == (408, "request_timeout")
        assert await slow.is_closed()
        assert await silent.is_closed()
    async with line(gateway) as bodiless:
        await bodiless.send(POST + b"Content-Length: 10\r\n\r\n")
        assert await bodiless.answer() == (408, "request_timeout")


async def test_a_connection_too_many_is_told_so(start_gateway: StartGateway) -> None:
    gateway = await start_gateway(http_connections=2)
    async with line(gateway) as first, line(gateway) as second:
        for opened in (first, second):
            await opened.send(HEALTH)
            assert await opened.answer() == (200, "")
        for request in (
            HEALTH,
            HEALTH[:-2] + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            POST + b"Content-Length: 2\r\n\r\n{}",
        ):
            async with line(gateway) as third:
                await third.send(request)
                assert await third.answer() == (503, "gateway_busy")
                assert await third.is_closed()


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET  HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_http_is_refused_in_our_shape(gateway: Router, garbage: bytes) -> None:
    async with line(gateway) as opened:
        await opened.send(garbage)
        assert await opened.answer() == (400, "malformed_http")
        assert await opened.is_closed()
