"""Commands by where they have to go: those of one key together, a transaction never taken apart."""

from __future__ import annotations

from collections.abc import Sequence

from .resp import Argument, Reply, pack

_KEYLESS = frozenset({"ECHO", "PING", "PUBLISH", "SCRIPT", "TIME"})
_KEY_PLACES = {"EVALSHA": 3, "XGROUP": 2, "XREADGROUP": -2}
"""Where the key stands in a command: for all others right behind its name."""
_ASKING = pack(("ASKING",))


class Routed:
    """Neighbouring commands of one key, or of none, that go to one node and are sent again together.

    `asked_at` is the node that has the key while its slot moves: it serves what follows an ASKING. `replies` is None
    until all have come.
    """

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.asked_at: tuple[str, int] | None = None
        self.replies: Sequence[Reply] | None = None
        self._statements: list[tuple[bytes, int]] = []

    def add(self, packed: bytes, count: int) -> None:
        """Takes a command, or a whole transaction of `count` commands."""
        self._statements.append((packed, count))

    @property
    def count(self) -> int:
        """How many answers come."""
        return sum(count for _, count in self._statements) + (len(self._statements) if self.asked_at else 0)

    def packed(self) -> bytes:
        """The commands as they go to the node."""
        start = _ASKING if self.asked_at else b""
        return b"".join(start + packed for packed, _ in self._statements)

    def own(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        """The answers without those to ASKING."""
        if not self.asked_at:
            return replies
        own: list[Reply] = []
        place = 0
        for _, count in self._statements:
            own += replies[place + 1 : place + 1 + count]
            place += 1 + count
        return own


def routed(commands: Sequence[Sequence[Argument]]) -> list[Routed]:
    """The commands in their order, neighbours of one key as one part."""
    parts: list[Routed] = []
    transaction: list[Sequence[Argument]] = []
    for command in commands:
        if transaction or command[0] == "MULTI":
            transaction.append(command)
            if command[0] != "EXEC":
                continue
            key, packed, count = _key_of(transaction[1]), b"".join(map(pack, transaction)), len(transaction)
            transaction = []
        else:
            key, packed, count = _key_of(command), command if isinstance(command, bytes) else pack(command), 1
        if not parts or parts[-1].key != key:
            parts.append(Routed(key))
        parts[-1].add(packed, count)
    return parts


def _key_of(command: Sequence[Argument] | bytes) -> str | None:
    if isinstance(command, bytes):  # packed: *count, $length, name, $length, key, …
        return command.split(b"\r\n", 5)[4].decode()
    name = str(command[0])
    return None if name in _KEYLESS else str(command[_KEY_PLACES.get(name, 1)])
