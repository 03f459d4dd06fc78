"""What a server executes, as MONITOR tells it: commands of clients, and those that scripts run."""

from __future__ import annotations

import re
import uuid
from types import TracebackType
from typing import Any, NamedTuple, Self

import redis

_LINE = re.compile(r"[0-9.]+ \[\d+ (\S+)\] (.*)\Z", re.DOTALL)
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


class Executed(NamedTuple):
    """A command: who sent it (an address, or `lua`), its name in capitals, its arguments as MONITOR writes them."""

    source: str
    name: str
    arguments: tuple[str, ...]


class Monitor:
    """Responsible for a record of all commands between entering and `executed`."""

    def __init__(self, outside: redis.Redis) -> None:
        self._outside: Any = outside
        self._connection: Any = outside.connection_pool.make_connection()

    def __enter__(self) -> Self:
        self._connection.send_command("MONITOR")
        assert self._connection.read_response() == "OK"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.disconnect()

    def executed(self) -> list[Executed]:
        """All commands up to now."""
        marker = uuid.uuid4().hex
        self._outside.echo(marker)
        commands: list[Executed] = []
        while True:
            found = _LINE.match(self._connection.read_response())
            assert found is not None
            name, *arguments = _PART.findall(found[2])
            if arguments == [marker]:
                return commands
            commands.append(Executed(found[1], name.upper(), tuple(arguments)))

    def undeclared(self) -> set[tuple[str, str]]:
        """Keys that scripts touched without naming them in KEYS, each with the command that touched it."""
        declared: set[str] = set()
        found: set[tuple[str, str]] = set()
        for command in self.executed():
            if command.name in ("EVALSHA", "EVAL"):
                count = int(command.arguments[1])
                declared = set(command.arguments[2 : 2 + count])
            elif command.source == "lua" and command.name != "TIME":
                keys = self._outside.command_getkeys(command.name, *command.arguments)
                found |= {(command.name, key) for key in keys if key not in declared}
        return found
