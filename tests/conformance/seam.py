"""The seam to Redis with hooks: a proxy that reads each command and each answer, and does to one of them what a test says."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from skillstream_router.broker import RouterBroker
from skillstream_worker.broker import WorkerBroker
from tests.client.bounds import soon
from tests.support.loopback_port import PIECE_BYTES, LoopbackPort

from .hooks import Deed, Hook, Unit
from .wire import SUBSCRIBING, Command, frames

_SCRIPTS = {script.sha.decode(): script.name for script in (*WorkerBroker.scripts, *RouterBroker.scripts)}
_REFUSED = b"*1\r\n$4\r\nXADD\r\n"
"""What goes to the server in place of a refused command: it refuses this, and with it the transaction around it."""


class Seam(LoopbackPort):
    """Responsible for all that one part of the system says to Redis, over however many connections.

    Commands are named as Redis names them (`XADD`), scripts as their files (`finish`). `passed` lists what reached the
    server, in order. A transaction passes as a whole.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self.passed: list[str] = []
        self._target = port
        self._hooks: list[Hook] = []
        self._wires: set[_Wire] = set()
        self._away = False

    def __repr__(self) -> str:
        return f"<Seam connections={len(self._wires)} hooks={self._hooks}>"

    def hold(self, name: str, *about: str) -> Hook:
        """The command waits before the server, and all behind it on its connection, until `Hook.release`."""
        return self._hook(Deed.HOLD, name, about)

    def late_answer(self, name: str, *about: str) -> Hook:
        """The command is executed; its answer, and all behind it, waits until `Hook.release`."""
        return self._hook(Deed.ANSWER_LATE, name, about)

    def lose(self, name: str, *about: str) -> Hook:
        """The command never arrives: its connection breaks."""
        return self._hook(Deed.LOSE, name, about)

    def lose_answer(self, name: str, *about: str) -> Hook:
        """The command is executed; the connection breaks before its answer comes back."""
        return self._hook(Deed.LOSE_ANSWER, name, about)

    def keep(self, name: str, *about: str) -> Hook:
        """The connection breaks and the command stays on its way: `Hook.arrive` has it executed, at any later moment."""
        return self._hook(Deed.KEEP, name, about)

    def repeat(self, name: str, *about: str) -> Hook:
        """The command is executed twice; the second answer meets nobody."""
        return self._hook(Deed.REPEAT, name, about)

    def refuse(self, name: str, *about: str, error: str, times: int = 1) -> Hook:
        """The command alone fails, `times` times, with the error that a server gives."""
        return self._hook(Deed.REFUSE, name, about, error, times)

    def drop(self) -> None:
        """Breaks all connections; new ones are taken."""
        for wire in list(self._wires):
            wire.close()

    def cut_off(self) -> None:
        """Breaks all connections and takes no new ones: for Redis, the part is dead."""
        self._away = True
        self.drop()

    def let_go(self) -> None:
        """Takes all hooks away and takes connections again; what waits goes on."""
        self._away = False
        for hook in self._hooks:
            hook.release()
        self._hooks.clear()

    def count(self, name: str) -> int:
        """How many commands of a name reached the server."""
        return self.passed.count(name)

    def _hook(self, deed: Deed, name: str, about: tuple[str, ...], error: str = "", times: int = 1) -> Hook:
        hook = Hook(deed, name, about, error, times, self._target)
        self._hooks.append(hook)
        return hook

    async def _end(self) -> None:
        self.let_go()
        await asyncio.gather(*self._work, return_exceptions=True)
        self.drop()
        await asyncio.gather(*[wire.ended() for wire in self._wires])

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._away:
            writer.close()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        wire = _Wire(writer, there_writer)
        self._wires.add(wire)
        wire.pumps = [asyncio.create_task(self._up(wire, reader)), asyncio.create_task(self._down(wire, there_reader))]

    async def _up(self, wire: _Wire, reader: asyncio.StreamReader) -> None:
        waiting = bytearray()
        unit: list[Command] = []
        try:
            while data := await reader.read(PIECE_BYTES):
                waiting += data
                for raw in frames(waiting):
                    unit.append(Command.read(raw, _SCRIPTS))
                    if unit[0].name != "MULTI" or unit[-1].name in ("EXEC", "DISCARD"):
                        await self._take(wire, Unit(unit))
                        unit = []
        except OSError:
            pass
        wire.close()

    async def _take(self, wire: _Wire, unit: Unit) -> None:
        hook = next((hook for hook in self._hooks if hook.wants(unit)), None)
        deed = None if hook is None else hook.deed
        if hook is not None:
            hook.take(unit)
        if hook is not None and deed in (Deed.LOSE, Deed.KEEP):
            await soon(wire.quiet())  # what was asked before is answered before
            wire.close()
            hook.met.set()
            return
        if hook is not None and deed is Deed.HOLD:
            hook.met.set()
            await hook.released.wait()
        self._pass(wire, unit, hook)
        if deed is Deed.REPEAT:
            self._pass(wire, unit, hook, is_copy=True)

    def _pass(self, wire: _Wire, unit: Unit, hook: Hook | None, *, is_copy: bool = False) -> None:
        for place, command in enumerate(unit.commands, 1):
            self.passed.append(command.name)
            is_refused = hook is not None and hook.deed is Deed.REFUSE and hook.names(command)
            wire.there.write(_REFUSED if is_refused else command.raw)
            if command.name not in SUBSCRIBING:
                wire.awaited.append(_Awaited(hook, is_refused, is_copy, is_last=place == len(unit.commands)))

    async def _down(self, wire: _Wire, reader: asyncio.StreamReader) -> None:
        waiting = bytearray()
        try:
            while data := await reader.read(PIECE_BYTES):
                waiting += data
                for raw in frames(waiting):
                    if raw[:1] == b">":  # out of turn
                        wire.here.write(raw)
                    else:
                        await wire.answer(raw)
        except OSError:
            pass
        wire.close()


class _Awaited(NamedTuple):
    """An answer that is to come: of a command that a hook may be for, or of its copy; the last one of its unit or not."""

    hook: Hook | None
    is_refused: bool
    is_copy: bool
    is_last: bool


class _Wire:
    """Responsible for one connection: which answers are awaited on it, and what becomes of each."""

    def __init__(self, here: asyncio.StreamWriter, there: asyncio.StreamWriter) -> None:
        self.here, self.there = here, there
        self.pumps: list[asyncio.Task[None]] = []
        self.awaited: deque[_Awaited] = deque()
        self._answered = asyncio.Event()

    async def answer(self, raw: bytes) -> None:
        """Does to an answer what its command's hook says."""
        hook, is_refused, is_copy, is_last = self.awaited.popleft()
        deed = None if hook is None else hook.deed
        if hook is not None and deed is Deed.ANSWER_LATE:
            hook.met.set()
            await hook.released.wait()
        if deed is not Deed.LOSE_ANSWER and not is_copy:
            self.here.write(b"-" + hook.error.encode() + b"\r\n" if hook is not None and is_refused else raw)
        elif is_last and deed is Deed.LOSE_ANSWER:
            self.close()
        if hook is not None and is_last and (is_copy or deed in (Deed.LOSE_ANSWER, Deed.REFUSE)):
            hook.met.set()
        self._answered.set()

    async def quiet(self) -> None:
        """Waits until all that reached the server was answered."""
        while self.awaited:
            self._answered.clear()
            await self._answered.wait()

    def close(self) -> None:
        """Breaks the connection at both ends; twice is safe."""
        self.here.close()
        self.there.close()

    async def ended(self) -> None:
        """Waits until nothing of a closed connection is left."""
        closing = (self.here.wait_closed(), self.there.wait_closed())
        await asyncio.gather(*self.pumps, *closing, return_exceptions=True)
