"""One raw connection: whole batches in order, and no answer for the wrong caller, whatever the server sends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from skillstream.connection import Connection, connect
from skillstream.resp import Reply, ReplyError
from skillstream_schemas.errors import BrokerAccessDenied, BrokerUnavailable, InvalidSettings
from skillstream_schemas.settings import Settings
from tests.conftest import make_settings
from tests.support.redis_server import RedisServer, free_port

from .bounds import soon


class RecordingTransport(asyncio.Transport):
    """Keeps what is written; a server that the test plays."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


class Played:
    """A connection whose other end the test plays."""

    def __init__(self) -> None:
        self.transport = RecordingTransport()
        self.pushes: list[Sequence[Reply]] = []
        self.connection = Connection(self.transport, object(), "redis://played", self.pushes.append)
        self.answers: list[list[Reply] | BrokerUnavailable] = []

    def send(self, expected: int) -> None:
        self.connection.send(b"x", expected, self.answers.append)


def test_answers_come_in_whole_batches_in_order() -> None:
    played = Played()
    played.send(2)
    played.send(1)
    played.connection.data_received(b"+one\r\n+tw")
    assert played.answers == []
    played.connection.data_received(b"o\r\n+three\r\n")
    assert played.answers == [[b"one", b"two"], [b"three"]]


def test_pushes_are_no_answers() -> None:
    played = Played()
    played.send(1)
    played.connection.data_received(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n+one\r\n")
    assert [list(push) for push in played.pushes] == [[b"invalidate", [b"k"]]]
    assert played.answers == [[b"one"]]


def test_error_answers_stand_in_their_places() -> None:
    played = Played()
    played.send(2)
    played.connection.data_received(b"-ERR no\r\n:1\r\n")
    [answer] = played.answers
    assert isinstance(answer, list)
    assert isinstance(answer[0], ReplyError)
    assert answer[1] == 1


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n", b"$-9\r\n", b"+one\r\n+two that nobody asked for\r\n"])
def test_an_unreadable_or_surplus_answer_breaks_the_connection(data: bytes) -> None:
    played = Played()
    closed: list[bool] = []
    played.connection.on_closed = lambda: closed.append(True)
    played.send(1)
    played.connection.data_received(data)
    assert not played.connection.is_open
    assert played.transport.aborted
    assert closed == [True]
    assert len(played.answers) == 1


def test_a_broken_connection_tells_all_that_wait_once() -> None:
    played = Played()
    played.send(1)
    played.send(2)
    played.connection.data_received(b"+one\r\n+half")
    played.connection.connection_lost(ConnectionResetError("reset"))
    played.connection.close()
    played.send(1)
    assert played.answers[0] == [b"one"]
    assert [type(answer) for answer in played.answers[1:]] == [BrokerUnavailable, BrokerUnavailable]
    assert "reset" in str(played.answers[1])


async def test_a_call_answers_or_raises(settings: Settings) -> None:
    connection = await connect(settings)
    try:
        assert await connection.call("ECHO", "hällo", timeout_s=10) == "hällo".encode()
        with pytest.raises(ReplyError, match="unknown command"):
            await connection.call("NONSENSE", timeout_s=10)
        assert await connection.call("ECHO", "still here", timeout_s=10) == b"still here"
        assert "open" in repr(connection)
    finally:
        connection.close()


async def test_a_call_without_answer_ends_the_connection(own_server: RedisServer) -> None:
    connection = await connect(make_settings(own_server.url))
    own_server.pause()
    try:
        with pytest.raises(BrokerUnavailable, match="no answer to ECHO"):
            await soon(connection.call("ECHO", "x", timeout_s=0.1))
        assert not connection.is_open
    finally:
        own_server.resume()


async def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"redis://user:hunter2@127.0.0.1:{free_port()}/0"
    with pytest.raises(BrokerUnavailable) as raised:
        await soon(connect(make_settings(url)))
    assert "hunter2" not in str(raised.value)
    assert raised.value.code == "broker_unavailable"


async def test_a_server_that_never_shakes_hands(own_server: RedisServer) -> None:
    own_server.pause()
    try:
        with pytest.raises(BrokerUnavailable):
            await soon(connect(make_settings(own_server.url, connect_timeout_s=0.2), protocol=3))
    finally:
        own_server.resume()


async def test_a_url_that_redis_py_does_not_know() -> None:
    with pytest.raises(InvalidSettings, match="redis_url"):
        await connect(make_settings("http://:hunter2@localhost"))


async def test_a_wrong_password(own_server: RedisServer) -> None:
    with own_server.client() as outside:
        outside.config_set("requirepass", "right")
    url = own_server.url.replace("redis://", "redis://:wrong@")
    with pytest.raises(BrokerAccessDenied) as raised:
        await soon(connect(make_settings(url)))
    assert ":wrong@" not in str(raised.value)
