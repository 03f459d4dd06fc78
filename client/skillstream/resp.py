"""Packing of commands and parsing of answers, by hiredis where it is installed.

The parser in Python gives the same values as hiredis: bytes, int, None, list, dict, bool, float,
`ReplyError` for an error answer and `Push` for a message out of turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

Argument = bytes | str | int | float
Reply = Any
"""What Redis answers: bytes, int, None, a list or dict of replies, or a ReplyError."""


class ReplyError(Exception):
    """An error answer of Redis, such as `OOM command not allowed …`."""

    @property
    def kind(self) -> str:
        """The first word, by which Redis tells errors apart: `OOM`, `NOSCRIPT`, `MOVED`, …"""
        return str(self).split(" ", 1)[0]


class Push(list[Any]):
    """A message out of turn (RESP3): invalidations, pub/sub."""


class Parser(Protocol):
    """What a connection needs of a parser; the contract has no answer that is a bare false, which would read as none."""

    def feed(self, data: bytes) -> None:
        """Takes what came from the socket."""

    def gets(self) -> Reply:
        """The next whole reply, False where none is complete."""


def pack_in_python(arguments: Iterable[Argument]) -> bytes:
    """`pack` for installations without hiredis."""
    parts = [blob(argument) for argument in arguments]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


def pack_around(before: Iterable[Argument], behind: Iterable[Argument]) -> tuple[bytes, bytes]:
    """What stands before and behind a `blob` in a packed command, for one sent often of which a single argument changes."""
    head, tail = [blob(argument) for argument in before], [blob(argument) for argument in behind]
    return b"*%d\r\n%b" % (len(head) + 1 + len(tail), b"".join(head)), b"".join(tail)


def blob(argument: Argument) -> bytes:
    """One argument as it stands in a packed command."""
    data = argument if type(argument) is bytes else str(argument).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


_INTEGER = re.compile(rb"[+-]?[0-9]+\Z")
_DOUBLE = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|inf|nan)\Z")


class PythonParser:
    """A RESP2 and RESP3 parser for installations without hiredis."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Takes what came from the socket."""
        self._buffer += data

    def gets(self) -> Reply:
        """The next whole reply, False where none is complete."""
        try:
            value, end = self._read(0)
        except _IncompleteError:
            return False
        del self._buffer[:end]
        return value

    def _read(self, start: int) -> tuple[Reply, int]:
        end = self._buffer.find(b"\r\n", start)
        if end < 0:
            raise _IncompleteError
        kind, line, after = self._buffer[start : start + 1], bytes(self._buffer[start + 1 : end]), end + 2
        match kind:
            case b"+":
                return line, after
            case b"-":
                return ReplyError(line.decode(errors="replace")), after
            case b":":
                return _integer(line), after
            case b"(" if _INTEGER.match(line):
                return line, after
            case b"_" if not line:
                return None, after
            case b"#" if line in (b"t", b"f"):
                return line == b"t", after
            case b"," if _DOUBLE.match(line):
                return float(line), after
            case b"$" | b"=":
                return self._blob(kind, _length(line), after)
            case b"*" | b"~" | b">" | b"%":
                return self._aggregate(kind, _length(line), after)
            case _:
                raise ValueError(f"{bytes(kind)!r} with {line[:40]!r} is no RESP")

    def _blob(self, kind: bytes | bytearray, length: int, start: int) -> tuple[Reply, int]:
        if length < 0:
            return None, start
        if len(self._buffer) < start + length + 2:
            raise _IncompleteError
        data = bytes(self._buffer[start : start + length])
        if kind == b"=" and data[3:4] != b":":
            raise ValueError(f"{data[:4]!r} is no type of a verbatim string")
        return data[4:] if kind == b"=" else data, start + length + 2

    def _aggregate(self, kind: bytes | bytearray, length: int, start: int) -> tuple[Reply, int]:
        if length < 0:
            return None, start
        items: list[Reply] = []
        for _ in range(length * 2 if kind == b"%" else length):
            item, start = self._read(start)
            items.append(item)
        if kind == b"%":
            return dict(zip(items[::2], items[1::2], strict=True)), start
        return (Push(items) if kind == b">" else items), start


def _integer(line: bytes) -> int:
    if _INTEGER.match(line) is None:
        raise ValueError(f"{line[:40]!r} is no integer")
    return int(line)


def _length(line: bytes) -> int:
    if (length := _integer(line)) < -1:
        raise ValueError(f"{length} is no length")
    return length


class _IncompleteError(Exception):
    pass


try:
    import hiredis
except ImportError:
    PUSH_TYPES: tuple[type, ...] = (Push,)

    def new_parser() -> Parser:
        """A parser for one connection."""
        return PythonParser()

    def pack(arguments: Iterable[Argument]) -> bytes:
        """One command in RESP, the form in which every client writes to Redis."""
        return pack_in_python(arguments)

else:
    PUSH_TYPES = (Push, hiredis.PushNotification)

    def new_parser() -> Parser:
        """A parser for one connection."""
        parser: Parser = hiredis.Reader(replyError=ReplyError, notEnoughData=False)
        return parser

    def pack(arguments: Iterable[Argument]) -> bytes:
        """One command in RESP, the form in which every client writes to Redis."""
        packed: bytes = _pack(tuple(arguments))
        return packed

    _pack: Any = hiredis.pack_command  # its stub knows tuples of one element only
