"""Group commit: all commands of a process travel in batches over one connection.

While a batch is under way the next one collects, so that the batches grow with the load and an idle
process waits for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial

from skillstream_schemas.errors import BrokerAccessDenied, BrokerUnavailable
from skillstream_schemas.settings import Settings

from .breaking_off import break_off
from .calling import FIRST_PAUSE_S, LONGEST_PAUSE_S, STALE_LINK, Caller, Problem
from .connection import Connection, OnPush, connect
from .resp import Argument, Reply, ReplyError, pack
from .scripts import Script
from .units import Unit, Waiting

log = logging.getLogger(__name__)

_FLIGHTS = 6
"""Batches under way at once: while the server works at one, the next is packed."""
_CROWD = 16
"""How much waits before a second batch goes beside the first: below it, what gathers is worth more."""
_FLIGHT_UNITS = 64
_DENIALS = frozenset({"NOAUTH", "NOPERM"})


class Pipeline(Caller):
    """Responsible for one connection to Redis and the order of what is sent over it.

    `generation` counts the connections made: behind a new one may stand another server, that lost acknowledged writes. On a
    cluster it also counts the times that the node was given slots.
    `server` is the URL of one node of a cluster: the pipeline then waits for no node that is away, since another may have
    its keys by now; whoever sends has the patience.
    """

    def __init__(self, settings: Settings, scripts: Sequence[Script] = (), *, server: str | None = None) -> None:
        super().__init__(settings)
        self.is_node = server is not None
        self._server = server
        self._patience_s = 0.0 if self.is_node else settings.patience_s
        self._scripts = tuple(scripts)
        self.generation = 0
        self._pending: deque[Unit] = deque()
        self._weight = 0
        self._busy = False
        self._flights: deque[tuple[list[tuple[Unit, int]], float]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._scheduled = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._connection else "connecting"
        return f"<Pipeline {state} pending={len(self._pending)} in_flight={sum(len(units) for units, _ in self._flights)}>"

    @property
    def is_open(self) -> bool:
        """True while a connection leads to the server."""
        return self._connection is not None and self._connection.is_open

    async def open(self) -> None:
        """Connects for the first time; raises BrokerUnavailable at once where nobody listens."""
        await self._connect()

    async def close(self) -> None:
        """Breaks off what is under way and closes the connection; twice is safe."""
        self._closed = True
        if self._connecting is not None:
            await break_off(self._connecting)
        if self._connection is not None:
            self._connection.close()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._fail_pending(BrokerUnavailable("closed here"))

    def add(self, unit: Unit) -> None:
        """Puts a unit into the next batch."""
        self._pending.append(unit)
        self.weigh()

    def weigh(self) -> None:
        """Says that a unit that waits has grown by an item."""
        self._weight += 1
        if not self._busy:  # otherwise it is looked at in a moment, with all that comes till then
            self._go_on()

    def _go_on(self) -> None:
        if not self._flights and not self._scheduled:
            self._write()  # idle: nothing to wait for; what comes in the same turn goes in the next batch
        elif self._weight >= _CROWD and len(self._flights) < _FLIGHTS:
            self._write()
        else:
            self._schedule()

    @property
    def connections_made(self) -> int:
        """The generation."""
        return self.generation

    def link_of(self, key: str) -> Pipeline:
        """This pipeline: it has all keys, unless `is_node`."""
        return self

    async def connect(self, key: str | None = None, *, protocol: int = 2, on_push: OnPush | None = None) -> Connection:
        """A connection of its own to the same server; raises as `connection.connect`."""
        return await connect(self._settings, protocol=protocol, on_push=on_push, server=self._server)

    async def heed(self, problem: Problem) -> None:
        """Leaves a server that is no primary any more."""
        if isinstance(problem, ReplyError) and problem.kind in STALE_LINK:
            self.drop_connection(str(problem))

    async def load(self, script: Script) -> None:
        """Gives a script to a server that forgot it; raises as `call` does."""
        await self.call("SCRIPT", "LOAD", script.source)

    def drop_connection(self, why: str) -> None:
        """Closes a connection that leads to the wrong server; the next batch opens another."""
        if self._connection is not None:
            self._connection.close(why)

    def ask(self, packed: bytes, count: int) -> asyncio.Future[Reply]:
        """Sends packed commands once; the future gets their answers, a list where `count` is not 1, or BrokerUnavailable."""
        waiting = Waiting(packed, count)
        self.add(waiting)
        return waiting.answer

    async def _persist(self, commands: Sequence[Sequence[Argument]], step: str) -> Reply:
        count = len(commands)
        packed = b"".join([c if type(c) is bytes else pack(c) for c in commands])
        problem: Problem | None
        since_s = asyncio.get_running_loop().time()
        try:  # nearly always the first answer counts, and asking costs no more than that
            reply = await self.ask(packed, count)
            problem = self.refusal(reply, count)
        except BrokerUnavailable as error:
            problem = error
        return reply if problem is None else await self.persist(partial(self.ask, packed, count), step, problem, since_s, count)

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
            self._fail_pending(BrokerUnavailable("closed here"))
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
        loop = asyncio.get_running_loop()
        self._flights.append((units, loop.time() + self._settings.answer_timeout_s))
        if self._watch is None:
            self._watch = loop.call_at(self._flights[0][1], self._look_at_the_oldest)
        connection.send(b"".join(parts), expected, self._landed)
        if self._pending:
            self._schedule()

    def _landed(self, replies: list[Reply] | BrokerUnavailable) -> None:
        units, _ = self._flights.popleft()
        self._busy = True  # what units add now waits for those whom the answers wake
        place = 0
        for unit, count in units:
            try:
                unit.deliver(replies if isinstance(replies, BrokerUnavailable) else replies[place : place + count])
            except ValueError as error:  # an answer that fits no question: nor do those behind it
                replies = BrokerUnavailable(f"unreadable answer: {error}")
                self.drop_connection(str(error))
                self._busy = True  # behind that the flights that were broken off have landed
            place += count
        self._busy = False
        if self._pending:
            self._go_on()

    def _look_at_the_oldest(self) -> None:
        """Closes a connection whose oldest batch has no answer in time; a timer for each would cost as much as a small batch."""
        loop = asyncio.get_running_loop()
        self._watch = None
        if not self._flights:
            return
        due_s = self._flights[0][1]
        if due_s <= loop.time() and self._connection is not None:
            self._connection.close(f"no answer within {self._settings.answer_timeout_s:g} s")
        else:
            self._watch = loop.call_at(due_s, self._look_at_the_oldest)

    def _reconnect(self) -> None:
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(self._keep_connecting(), name="skillstream-reconnect")

    async def _keep_connecting(self) -> None:
        now_s = asyncio.get_running_loop().time
        pause_s = FIRST_PAUSE_S
        give_up_s = now_s() + self._patience_s
        while not self._closed:
            try:
                await self._connect()
            except (BrokerUnavailable, ReplyError) as error:
                if now_s() >= give_up_s or self.is_hopeless(error):
                    # nothing of this was sent; whoever waits hears it, and the next unit tries again
                    self._fail_pending(error if isinstance(error, BrokerUnavailable) else BrokerUnavailable(str(error)))
                    return
                await asyncio.sleep(min(pause_s, max(0.0, give_up_s - now_s())))
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            else:
                if self.generation > 1:
                    log.info("connected to the broker again")
                self._schedule()
                return

    async def _connect(self) -> None:
        connection = await self.connect()
        try:
            for script in self._scripts:
                await connection.call("SCRIPT", "LOAD", script.source, timeout_s=self._settings.answer_timeout_s)
        except ReplyError as error:
            connection.close()
            kind = BrokerAccessDenied if error.kind in _DENIALS else BrokerUnavailable
            raise kind(f"loading scripts: {error}") from None
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self.generation += 1

    def _fail_pending(self, why: BrokerUnavailable) -> None:
        pending, self._pending = self._pending, deque()
        for unit in pending:
            unit.deliver(why)
