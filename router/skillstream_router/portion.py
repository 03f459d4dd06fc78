"""How many things to read at once, so that what is read stays bounded in bytes."""

from __future__ import annotations

PORTION_BYTES = 8 * 1024 * 1024
_FIRST = 50


class Portion:
    """Responsible for the size of the next read, learned from the one before: about `PORTION_BYTES`, `most` things at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.at_once = min(_FIRST, most)

    def __repr__(self) -> str:
        return f"<Portion at_once={self.at_once}>"

    def of(self, waiting: int) -> int:
        """How many of `waiting` things to read next: parts as equal as can be, since a small last one costs a whole round."""
        parts = -(-waiting // self.at_once)
        return -(-waiting // parts)

    def learn(self, count: int, size_bytes: int) -> None:
        """Takes note of a read of `count` things that had `size_bytes` together."""
        if count:
            self.at_once = max(1, min(self._most, PORTION_BYTES * count // max(size_bytes, 1)))
