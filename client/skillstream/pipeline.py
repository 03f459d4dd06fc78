"""Group commit: all commands of a process travel in batches over one connection.

While a batch is under way the next one collects, so that the batches grow with the load and an idle
process waits for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from skillstream_schemas.errors import BrokerRefused, BrokerUnavailable
from skillstream_schemas.settings import Settings

from .connection import Connection, connect
from .resp import Argument, Reply, ReplyError, pack
from .scripts import Script
from .units import Unit, Waiting

log = logging.getLogger(__name__)

RETRY_KINDS = frozenset({"LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "OOM", "NOREPLICAS", "BUSY", "MISCONF"})
"""Answers of a broker that cannot take a write just now; nothing of the command was done."""
STALE_LINK = frozenset({"READONLY", "MASTERDOWN"})
"""Answers of a server that is no primary any more: connect again, it may be another one."""
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_FLIGHTS = 6
"""Batches under way at once: while the server works at one, the next is packed."""
_CROWD = 16
"""How much waits before a second batch goes beside the first: below it, what gathers is worth more."""
_FLIGHT_UNITS = 64


class Pipeline:
    """Responsible for one connection to Redis and the order of what is sent over it.

    `generation` counts the connections made: behind a new one may stand another server, that lost acknowledged writes.
    """

    def __init__(self, settings: Settings, scripts: Sequence[Script] = ()) -> None:
        self._settings = settings
        self._scripts = tuple(scripts)
        self.generation = 0
        self._pending: deque[Unit] = deque()
        self._weight = 0
        self._busy = False
        self._flights: deque[tuple[list[tuple[Unit, int]], asyncio.TimerHandle]] = deque()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._scheduled = False
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._connection else "connecting"
        return f"<Pipeline {state} pending={len(self._pending)} in_flight={sum(len(units) for units, _ in self._flights)}>"

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
        self.weigh()

    def weigh(self) -> None:
        """Says that a unit that waits has grown by an item."""
        self._weight += 1
        if self._busy:
            return  # looked at again in a moment, with all that comes till then
        if not self._flights and not self._scheduled:
            self._write()  # idle: nothing to wait for; what comes in the same turn goes in the next batch
        elif self._weight >= _CROWD and len(self._flights) < _FLIGHTS:
            self._write()
        else:
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

    async def run_and_read(
        self, script: Script, keys: Sequence[Argument], arguments: Sequence[Argument], read: Sequence[Argument]
    ) -> tuple[Reply, Reply]:
        """Runs a script and, behind it in the same batch, a command that reads; returns both answers, raises as `call` does.

        An entry costs a server several times more on its way through a script than when it is read.
        """
        packed = pack(script.evalsha(keys, arguments)) + pack(read)
        replies = await self._persist(packed, script.name, 2)
        if isinstance(replies[0], ReplyError) and replies[0].kind == "NOSCRIPT":
            await self.load(script)
            replies = await self._persist(packed, script.name, 2)
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise BrokerRefused(f"{script.name}: {reply}")
        return replies[0], replies[1]

    async def load(self, script: Script) -> None:
        """Gives a script to a server that forgot it; raises as `call` does."""
        await self.call("SCRIPT", "LOAD", script.source)

    async def batch(self, commands: Sequence[Sequence[Argument]], step: str) -> list[Reply]:
        """Runs several commands that may be repeated as one unit; error answers stand in their places.

        A command that is bytes is packed already. All are sent again where the broker cannot take one of them just now,
        as in `call`.
        """
        if not commands:
            return []
        replies = await self._persist(b"".join(c if type(c) is bytes else pack(c) for c in commands), step, len(commands))
        return [replies] if len(commands) == 1 else list(replies)

    def drop_connection(self, why: str) -> None:
        """Closes a connection that leads to the wrong server; the next batch opens another."""
        if self._connection is not None:
            self._connection.close(why)

    def _ask(self, packed: bytes, count: int) -> asyncio.Future[Reply]:
        waiting = Waiting(packed, count)
        self.add(waiting)
        return waiting.answer

    async def _persist(self, packed: bytes, step: str, count: int = 1) -> Reply:
        problem: Exception | None
        try:  # nearly always the first answer counts, and asking costs no more than that
            reply = await self._ask(packed, count)
            problem = passing_refusal(reply, count)
        except BrokerUnavailable as error:
            problem = error
        return reply if problem is None else await self.persist(partial(self._ask, packed, count), step, problem, count)

    async def persist(self, ask: Callable[[], asyncio.Future[Reply]], step: str, problem: Exception, count: int = 1) -> Reply:
        """The answer, or the list of `count` answers, asked for again after `problem` until it comes.

        Raises BrokerUnavailable after `patience_s`.
        """
        give_up = asyncio.get_running_loop().time() + self._settings.patience_s
        pause_s = _FIRST_PAUSE_S
        while True:
            if isinstance(problem, ReplyError) and problem.kind in STALE_LINK:
                self.drop_connection(str(problem))
            if self._closed or asyncio.get_running_loop().time() + pause_s > give_up:
                text = problem.message if isinstance(problem, BrokerUnavailable) else str(problem)
                raise BrokerUnavailable(f"{step}: {text}") from None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            try:
                reply = await ask()
                refusal = passing_refusal(reply, count)
            except BrokerUnavailable as error:
                problem = error
            else:
                if refusal is None:
                    return reply
                problem = refusal

    def _schedule(self) -> None:
        # one turn of the loop later, so that callers of the same turn share a batch
        if not self._scheduled and self._may_write():
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._write)

    def _may_write(self) -> bool:
        return not self._flights or (len(self._flights) < _FLIGHTS and self._weight >= _CROWD)

    def _write(self) -> None:
        self._scheduled = False
        if not self._pending or not self._may_write():
            return
        if self._closed:
            self._fail_pending("closed here")
            return
        connection = self._connection
        if connection is None or not connection.is_open:
            self._reconnect()
            return
        self._busy = True
        parts: list[bytes] = []
        units: list[tuple[Unit, int]] = []
        size_bytes = expected = 0
        while self._pending and size_bytes < self._settings.limits.flight_bytes and len(units) < _FLIGHT_UNITS:
            unit = self._pending.popleft()
            data, count = unit.pack()
            if count:
                parts.append(data)
                units.append((unit, count))
                size_bytes += len(data)
                expected += count
        self._busy = False
        self._weight = max(len(self._pending), self._weight - _FLIGHT_UNITS) if self._pending else 0
        if not units:
            return
        timeout_s = self._settings.answer_timeout_s
        deadline = asyncio.get_running_loop().call_later(timeout_s, connection.close, f"no answer within {timeout_s:g} s")
        self._flights.append((units, deadline))
        connection.send(b"".join(parts), expected, self._landed)
        if self._pending:
            self._schedule()

    def _landed(self, replies: list[Reply] | BrokerUnavailable) -> None:
        units, deadline = self._flights.popleft()
        deadline.cancel()
        self._busy = True  # what units add now waits for those whom the answers wake
        place = 0
        for unit, count in units:
            unit.deliver(replies if isinstance(replies, BrokerUnavailable) else replies[place : place + count])
            place += count
        self._busy = False
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


def passing_refusal(reply: Reply, count: int) -> ReplyError | None:
    """The answer, or the first among several, that a broker gives which cannot take a command just now."""
    if count == 1 and type(reply) is not ReplyError:
        return None
    for answer in reply if count > 1 else (reply,):
        if isinstance(answer, ReplyError) and answer.kind in RETRY_KINDS:
            return answer
    return None
