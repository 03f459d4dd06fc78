"""RESP as it goes over the wire: where a frame ends, and what a command says. Shares no code with the product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

SUBSCRIBING = frozenset({"SUBSCRIBE", "UNSUBSCRIBE"})
"""On RESP3 these are answered with a push, out of turn."""
_BLOBS, _LISTS = b"$=!", b"*~>%|"


def frames(waiting: bytearray) -> Iterator[bytes]:
    """Takes whole frames from the front of what has come; what is left waits for more."""
    while (end := _end(waiting, 0)) > 0:
        frame = bytes(waiting[:end])
        del waiting[:end]
        yield frame


def _end(data: bytearray, start: int) -> int:
    """Where the frame that begins at `start` ends, -1 while it is not whole."""
    line_end = data.find(b"\r\n", start)
    if line_end < 0:
        return -1
    kind, end = data[start], line_end + 2
    if kind in _BLOBS:
        length = int(data[start + 1 : line_end])
        end += length + 2 if length >= 0 else 0
        return end if end <= len(data) else -1
    if kind in _LISTS:
        for _ in range(int(data[start + 1 : line_end]) * (2 if kind in b"%|" else 1)):
            end = _end(data, end)
            if end < 0:
                return -1
    return end


class Command(NamedTuple):
    """One command: its name or that of its script, its arguments, and its bytes."""

    name: str
    arguments: tuple[bytes, ...]
    raw: bytes

    @classmethod
    def read(cls, raw: bytes, scripts: Mapping[str, str]) -> Command:
        """Reads a command; `scripts` names those that are called by their hash."""
        rest = bytearray(raw[raw.index(b"\r\n") + 2 :])
        words = [frame[frame.index(b"\r\n") + 2 : -2] for frame in frames(rest)]
        name = words[0].decode().upper()
        if name == "EVALSHA":
            name = scripts.get(words[1].decode(), name)
        return cls(name, tuple(words[1:]), raw)
