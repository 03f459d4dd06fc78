"""Group commit: all commands of a process travel in batches over one connection.

While a batch is under way the next one collects, so that the batches grow with the load and an idle
process waits for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable
from skillstream_schemas.settings import Settings

from .connection import Connection, connect
from .resp import Argument, Reply, ReplyError, pack
from .scripts import Script

log = logging.getLogger(__name__)

RETRY_KINDS = frozenset({"LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "OOM", "NOREPLICAS", "BUSY", "MISCONF"})
"""Answers of a broker that cannot take a write just now; nothing of the command was done."""
STALE_LINK = frozenset({"READONLY", "MASTERDOWN"})
"""Answers of a server that is no primary any more: connect again, it may be another one."""
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


class Unit(Protocol):
    """Commands that travel together in one batch."""

    def pack(self) -> tuple[bytes, int]:
        """Called at the moment of writing: the packed commands and how many answers they bring; (b"", 0) for none."""

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        """Called with the answers, or with the error after which nobody knows whether they were executed."""


class Pipeline:
    """Responsible for one connection to Redis and the order of what is sent over it.

    `generation` counts the connections made: behind a new one may stand another server, that lost acknowledged writes.
    """

    def __init__(self, settings: Settings, scripts: Sequence[Script] = ()) -> None:
        self._settings = settings
        self._scripts = tuple(scripts)
        self.generation = 0
        self._pending: deque[Unit] = deque()
        self._flight: list[tuple[Unit, int]] = []
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._connection else "connecting"
        return f"<Pipeline {state} pending={len(self._pending)} in_flight={len(self._flight)}>"

    async def open(self) -> None:
        """Connects for the first time; raises BrokerUnavailable at once where nobody listens."""
        await self._connect()

    async def close(self) -> None:
        """Breaks off what is under way and closes the connection; twice is safe."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
        self._fail_pending("closed here")

    def add(self, unit: Unit) -> None:
        """Puts a unit into the next batch."""
        self._pending.append(unit)
        self._schedule()

    async def call(self, *arguments: Argument, step: str = "") -> Reply:
        """Runs one command that may be repeated, for as long as the broker's patience lasts.

        It is sent again after a broken connection and where the broker cannot take writes just now. Raises
        BrokerUnavailable, which names `step`, after `patience_s`, and BrokerRefused for any other error answer.
        """
        reply = await self._persist(pack(arguments), step or str(arguments[0]))
        if isinstance(reply, ReplyError):
            raise BrokerRefused(f"{step or arguments[0]!s}: {reply}")
        return reply

    async def run(self, script: Script, keys: Sequence[Argument], arguments: Sequence[Argument]) -> Reply:
        """Runs a script that may be repeated; raises as `call` does."""
        packed = pack(script.evalsha(keys, arguments))
        reply = await self._persist(packed, script.name)
        if isinstance(reply, ReplyError) and reply.kind == "NOSCRIPT":
            await self.load(script)
            reply = await self._persist(packed, script.name)
        if isinstance(reply, ReplyError):
            raise BrokerRefused(f"{script.name}: {reply}")
        return reply

    async def load(self, script: Script) -> None:
        """Gives a script to a server that forgot it; raises as `call` does."""
        await self.call("SCRIPT", "LOAD", script.source)

    async def batch(self, commands: Sequence[Sequence[Argument]], step: str) -> list[Reply]:
        """Runs several commands that may be repeated as one unit; error answers stand in their places.

        All are sent again where the broker cannot take one of them just now, as in `call`.
        """
        if not commands:
            return []
        replies = await self._persist(b"".join(pack(command) for command in commands), step, len(commands))
        return [replies] if len(commands) == 1 else list(replies)

    def drop_connection(self, why: str) -> None:
        """Closes a connection that leads to the wrong server; the next batch opens another."""
        if self._connection is not None:
            self._connection.close(why)

    def _ask(self, packed: bytes, count: int) -> asyncio.Future[Reply]:
        waiting = _Waiting(packed, count)
        self.add(waiting)
        return waiting.answer

    def _persist(self, packed: bytes, step: str, count: int = 1) -> Awaitable[Reply]:
        return self.persist(partial(self._ask, packed, count), step, count)

    async def persist(self, ask: Callable[[], asyncio.Future[Reply]], step: str, count: int = 1) -> Reply:
        """The answer, or the list of `count` answers, asked for until it comes; raises BrokerUnavailable after `patience_s`."""
        give_up = 0.0
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                reply = await ask()
                refusal = _passing_refusal(reply, count)
                if refusal is None:
                    return reply
                problem: Exception = refusal
                if refusal.kind in STALE_LINK:
                    self.drop_connection(str(refusal))
            except BrokerUnavailable as error:
                problem = error
            now_s = asyncio.get_running_loop().time()
            give_up = give_up or now_s + self._settings.patience_s
            if self._closed or now_s + pause_s > give_up:
                text = problem.message if isinstance(problem, BrokerUnavailable) else str(problem)
                raise BrokerUnavailable(f"{step}: {text}") from None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _schedule(self) -> None:
        # one turn of the loop later, so that callers of the same turn share a batch
        if not self._scheduled and not self._flight:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._scheduled = False
        if self._flight or not self._pending:
            return
        if self._closed:
            self._fail_pending("closed here")
            return
        connection = self._connection
        if connection is None or not connection.is_open:
            self._reconnect()
            return
        parts: list[bytes] = []
        flight: list[tuple[Unit, int]] = []
        size_bytes = expected = 0
        while self._pending and size_bytes < self._settings.limits.flight_bytes:
            unit = self._pending.popleft()
            data, count = unit.pack()
            if count:
                parts.append(data)
                flight.append((unit, count))
                size_bytes += len(data)
                expected += count
        if not flight:
            return
        self._flight = flight
        timeout_s = self._settings.answer_timeout_s
        self._deadline = asyncio.get_running_loop().call_later(timeout_s, connection.close, f"no answer within {timeout_s:g} s")
        connection.send(b"".join(parts), expected, self._landed)

    def _landed(self, replies: list[Reply] | BrokerUnavailable) -> None:
        flight, self._flight = self._flight, []
        if self._deadline is not None:
            self._deadline.cancel()
        place = 0
        for unit, count in flight:
            unit.deliver(replies if isinstance(replies, BrokerUnavailable) else replies[place : place + count])
            place += count
        if self._pending:
            self._schedule()

    def _reconnect(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._keep_connecting(), name="skillstream-reconnect")

    async def _keep_connecting(self) -> None:
        pause_s = _FIRST_PAUSE_S
        give_up = asyncio.get_running_loop().time() + self._settings.patience_s
        while not self._closed:
            try:
                await self._connect()
            except (BrokerUnavailable, ReplyError) as error:
                if asyncio.get_running_loop().time() > give_up:
                    # nothing of this was sent; whoever waits hears it, and the next unit tries again
                    self._fail_pending(error.message if isinstance(error, BrokerUnavailable) else str(error))
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                log.info("connected to the broker again")
                self._schedule()
                return

    async def _connect(self) -> None:
        connection = await connect(self._settings)
        try:
            for script in self._scripts:
                await connection.call("SCRIPT", "LOAD", script.source, timeout_s=self._settings.answer_timeout_s)
        except ReplyError as error:
            connection.close()
            raise BrokerUnavailable(f"loading scripts: {error}") from None
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self.generation += 1

    def _fail_pending(self, why: str) -> None:
        pending, self._pending = self._pending, deque()
        for unit in pending:
            unit.deliver(BrokerUnavailable(why))


def _passing_refusal(reply: Reply, count: int) -> ReplyError | None:
    """The answer, or the first among several, that a broker gives which cannot take a command just now."""
    for answer in reply if count > 1 else (reply,):
        if isinstance(answer, ReplyError) and answer.kind in RETRY_KINDS:
            return answer
    return None


class _Waiting:
    """Commands whose caller awaits the answers; a caller that was cancelled misses them, nobody else does.

    The answer to one command is that reply, to several a list.
    """

    __slots__ = ("_count", "_packed", "answer")

    def __init__(self, packed: bytes, count: int) -> None:
        self._packed, self._count = packed, count
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def pack(self) -> tuple[bytes, int]:
        return (b"", 0) if self.answer.cancelled() else (self._packed, self._count)

    def deliver(self, replies: Sequence[Reply] | BrokerUnavailable) -> None:
        if self.answer.done():
            return
        if isinstance(replies, BrokerUnavailable):
            self.answer.set_exception(replies)
        else:
            self.answer.set_result(replies[0] if self._count == 1 else replies)
