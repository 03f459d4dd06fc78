"""One raw connection to Redis: batches of packed commands out, batches of parsed answers back.

redis-py reads the URL, connects, authenticates and secures the connection; then its transport is ours, since
redis-py's own reading and packing costs several times more per command (docs/wire-format.md, section on speed).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import redis
import redis.asyncio
import redis.exceptions

from skillstream_schemas.errors import BrokerAccessDenied, BrokerUnavailable, InvalidSettings
from skillstream_schemas.settings import Settings, without_secret

from .resp import PUSH_TYPES, Argument, Reply, ReplyError, new_parser, pack
from .sentinel import SentinelUrl

_SCHEMES = (
    *("redis://", "rediss://", "unix://"),
    *("redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://"),
)

_DENIALS = (
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthenticationWrongNumberOfArgsError,
    redis.exceptions.NoPermissionError,
)

OnReplies = Callable[[list[Reply] | BrokerUnavailable], None]
OnPush = Callable[[Sequence[Reply]], None]


class Connection(asyncio.Protocol):
    """Responsible for one socket: answers are handed on in the order of their commands, whole batches at once."""

    def __init__(self, transport: asyncio.Transport, owner: object, address: str, on_push: OnPush | None) -> None:
        self._transport = transport
        self._owner = owner  # the writer of the handshake: it would close the transport when collected
        self._address = address
        self._on_push = on_push
        self._parser = new_parser()
        self._awaited: deque[tuple[int, OnReplies]] = deque()
        self._replies: list[Reply] = []
        self._closed: BrokerUnavailable | None = None
        self.on_closed: Callable[[], None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Connection {self._address} {state} awaiting={sum(n for n, _ in self._awaited)}>"

    @property
    def is_open(self) -> bool:
        """False once the connection broke or was closed."""
        return self._closed is None

    def send(self, data: bytes, expected: int, on_replies: OnReplies) -> None:
        """Writes packed commands; `on_replies` gets their `expected` answers, or the error that broke the connection."""
        if self._closed is not None:
            on_replies(self._closed)
            return
        self._awaited.append((expected, on_replies))
        self._transport.write(data)

    def send_only(self, *arguments: Argument) -> None:
        """Sends a command whose answer comes as a push, such as SUBSCRIBE on RESP3."""
        if self._closed is None:
            self._transport.write(pack(arguments))

    async def call(self, *arguments: Argument, timeout_s: float) -> Reply:
        """Sends one command and waits for its answer.

        Raises ReplyError for an error answer and BrokerUnavailable where none came within `timeout_s`;
        the connection is then closed, so that a late answer meets nobody.
        """
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def deliver(replies: list[Reply] | BrokerUnavailable) -> None:
            if answer.done():
                return
            if isinstance(replies, BrokerUnavailable):
                answer.set_exception(replies)
            elif isinstance(replies[0], ReplyError):
                answer.set_exception(replies[0])
            else:
                answer.set_result(replies[0])

        self.send(pack(arguments), 1, deliver)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self.close(f"no answer to {arguments[0]!s} within {timeout_s:g} s")
            raise BrokerUnavailable(f"{self._address}: no answer to {arguments[0]!s} within {timeout_s:g} s") from None

    def close(self, why: str = "closed here") -> None:
        """Closes the connection; whoever waits for an answer gets BrokerUnavailable. Twice is safe."""
        self._break(why)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Called by the event loop with what came from the socket."""
        try:
            self._parser.feed(data)
            while (reply := self._parser.gets()) is not False:
                if isinstance(reply, PUSH_TYPES):
                    if self._on_push is not None:
                        self._on_push(cast(Sequence[Reply], reply))
                    continue
                self._take(reply)
        except Exception as error:
            if not self.is_open:
                return
            self.close(f"unreadable answer: {type(error).__name__}: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop when the socket is gone."""
        self._break(str(exc) if exc else "the server closed the connection")

    def _take(self, reply: Reply) -> None:
        if not self._awaited:
            raise ValueError("an answer that nobody asked for")
        self._replies.append(reply)
        expected, on_replies = self._awaited[0]
        if len(self._replies) == expected:
            replies, self._replies = self._replies, []
            self._awaited.popleft()
            on_replies(replies)

    def _break(self, why: str) -> None:
        if self._closed is not None:
            return
        self._closed = BrokerUnavailable(f"{self._address}: {why}")
        awaited, self._awaited = self._awaited, deque()
        for _, on_replies in awaited:
            on_replies(self._closed)
        if self.on_closed is not None:
            self.on_closed()


async def connect(
    settings: Settings, *, protocol: int = 2, on_push: OnPush | None = None, server: str | None = None
) -> Connection:
    """Opens a connection to the broker of these settings, or to the `server` of this URL: a node of their cluster.

    `protocol` is the RESP version; 3 hands messages out of turn to `on_push`. Raises BrokerUnavailable, BrokerAccessDenied,
    or InvalidSettings for a URL that redis-py does not know.
    """
    address = without_secret(server or settings.redis_url)
    sentinels = SentinelUrl.parse(settings.redis_url)
    url = server or (settings.redis_url if sentinels is None else await sentinels.primary_url(settings.connect_timeout_s))
    made = _redis_connection(redis.asyncio.ConnectionPool, url, settings, protocol)
    task = asyncio.current_task()
    canceled_before = task.cancelling() if task is not None else 0
    try:
        await made.connect()
        if task is not None and task.cancelling() > canceled_before:
            raise asyncio.CancelledError  # redis-py's asyncio.wait_for swallows it on Python 3.11 where an answer is there
    except asyncio.CancelledError:
        await made.disconnect(nowait=True)  # redis-py leaves a socket open whose handshake was cut off
        raise
    except (TimeoutError, redis.exceptions.RedisError, OSError) as error:
        kind = BrokerAccessDenied if isinstance(error, _DENIALS) else BrokerUnavailable
        raise kind(f"{address}: {error}") from None
    # redis-py closes, and warns of, a connection that it still believes its own when collected
    writer, made._writer = made._writer, None
    transport = cast(asyncio.Transport, writer.transport)
    connection = Connection(transport, writer, address, on_push)
    transport.set_protocol(connection)
    return connection


def connect_blocking(settings: Settings) -> Any:
    """redis-py's connection without an event loop, connected to the one server of these settings; `_sock` is its socket.

    Raises BrokerUnavailable, BrokerAccessDenied, InvalidSettings.
    """
    made = _redis_connection(redis.ConnectionPool, settings.redis_url, settings, 2)
    try:
        made.connect()
    except (TimeoutError, redis.exceptions.RedisError, OSError) as error:
        kind = BrokerAccessDenied if isinstance(error, _DENIALS) else BrokerUnavailable
        raise kind(f"{without_secret(settings.redis_url)}: {error}") from None
    return made


def _redis_connection(pool_type: Any, url: str, settings: Settings, protocol: int) -> Any:
    options: dict[str, Any] = {
        "protocol": protocol,
        "decode_responses": False,
        "socket_connect_timeout": settings.connect_timeout_s,
        # for the handshake alone: afterwards our own bounds count (redis-py 8 would cut blocking reads at 5 s)
        "socket_timeout": settings.connect_timeout_s,
    }
    if url.startswith("rediss://"):
        options["ssl_check_hostname"] = True  # redis-py checks it by itself from version 6 on
    try:
        return pool_type.from_url(url, **options).make_connection()
    except (ValueError, TypeError, AttributeError, redis.exceptions.RedisError) as error:
        raise InvalidSettings(f"redis_url {without_secret(url)}: {_why_refused(url, error)}") from None


def _why_refused(url: str, error: Exception) -> str:
    # redis-py's own words may quote a piece of the URL, and that piece may be of the password
    if not url.startswith(_SCHEMES):
        return f"its scheme is none of {', '.join(_SCHEMES)}"
    if isinstance(error, (TypeError, redis.exceptions.RedisError)):
        return "redis-py does not know one of its query parameters, or the value of one"
    return "it cannot be read: in user and password, characters such as / ? # @ % are written as %2F %3F %23 %40 %25"
