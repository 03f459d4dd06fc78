"""Yielded text on its way into chunk entries: what may be written now, and in which pieces."""

from __future__ import annotations

from skillstream.cutting import Boundary, last_boundary, split
from skillstream_schemas.limits import utf8_length

from .chunking import Chunking


class TextBuffer:
    """Responsible for text that was yielded and stands in no entry yet."""

    def __init__(self, chunking: Chunking, entry_bytes: int) -> None:
        self._chunking = chunking
        self._entry_bytes = entry_bytes
        self._parts: list[str] = []
        self.chars = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<TextBuffer chars={self.chars} bytes={self.size_bytes}>"

    def add(self, text: str, size_bytes: int) -> None:
        """Takes a yielded piece of `size_bytes` UTF-8 bytes."""
        self._parts.append(text)
        self.chars += len(text)
        self.size_bytes += size_bytes

    @property
    def is_ripe(self) -> bool:
        """True where so much has gathered that it is not to wait for more."""
        return self.chars >= self._chunking.max_chars or self.size_bytes >= self._entry_bytes

    def take(self, *, everything: bool) -> list[str]:
        """Removes and returns what may be written now, as texts of entries, each within the size of one.

        With `everything` nothing waits for a boundary.
        """
        if not self.chars:
            return []
        if not self._chunking.merges:
            pieces = [piece for part in self._parts for piece in split(part, self._entry_bytes)]
            self._reset("")
            return pieces
        text = "".join(self._parts)
        boundary = Boundary(self._chunking.boundary)
        end = len(text) if everything or boundary is Boundary.NONE else self._ripe_end(text, boundary)
        self._reset(text[end:])
        return split(text[:end], self._entry_bytes, boundary) if end else []

    def _ripe_end(self, text: str, boundary: Boundary) -> int:
        end = last_boundary(text, boundary)
        if end == 0 and self.is_ripe:
            end = last_boundary(text, Boundary.WORD) or len(text)
        return end

    def _reset(self, rest: str) -> None:
        self._parts = [rest] if rest else []
        self.chars = len(rest)
        self.size_bytes = utf8_length(rest)
