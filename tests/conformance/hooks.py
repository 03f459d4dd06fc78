"""What a test does to a command on its way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto

from tests.client.bounds import soon

from .wire import Command, frames


class Deed(Enum):
    """What becomes of a command; the methods of Seam say it in full."""

    HOLD = auto()
    ANSWER_LATE = auto()
    LOSE = auto()
    LOSE_ANSWER = auto()
    KEEP = auto()
    REPEAT = auto()
    REFUSE = auto()


@dataclass(frozen=True, slots=True)
class Unit:
    """A command, or a transaction from MULTI to EXEC."""

    commands: list[Command]


class Hook:
    """Responsible for the next commands of one name that carry all of `about` among their arguments.

    `met` is set once it has come to what the hook is for.
    """

    def __init__(self, deed: Deed, name: str, about: tuple[str, ...], error: str, times: int, port: int) -> None:
        self.deed, self.name, self.error = deed, name, error
        self.met = asyncio.Event()
        self.released = asyncio.Event()
        self._about = tuple(word.encode() for word in about)
        self._left, self._port = times, port
        self._unit: Unit | None = None

    def __repr__(self) -> str:
        return f"<Hook {self.deed.name} {self.name} {self._about} met={self.met.is_set()} left={self._left}>"

    async def happened(self) -> None:
        """Waits until it has come to what the hook is for, within the bound."""
        await soon(self.met.wait())

    def release(self) -> None:
        """Lets go what is held, and touches nothing more."""
        self._left = 0
        self.released.set()

    async def arrive(self) -> list[bytes]:
        """Has a kept command executed now, on a connection of its own; returns the raw answers."""
        assert self._unit is not None, "nothing was kept"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        answers: list[bytes] = []
        try:
            writer.write(b"".join(command.raw for command in self._unit.commands))
            waiting = bytearray()
            while len(answers) < len(self._unit.commands):
                waiting += await soon(reader.read(65_536))
                answers += frames(waiting)
        finally:
            writer.close()
        return answers

    def names(self, command: Command) -> bool:
        """True for a command of the hook's name and arguments."""
        return command.name == self.name and all(word in command.arguments for word in self._about)

    def wants(self, unit: Unit) -> bool:
        """True where something is to be done to a unit."""
        return self._left > 0 and any(map(self.names, unit.commands))

    def take(self, unit: Unit) -> None:
        """Takes a unit on."""
        self._left -= 1
        self._unit = unit
