"""All text of an attempt, and the text that was yielded a moment ago and is not looked at yet."""

from __future__ import annotations

from skillstream_schemas.errors import OutputTooLarge
from skillstream_schemas.limits import utf8_length


class Said:
    """Responsible for what an attempt has said so far, within the output limit.

    `fresh` takes pieces at the price of a list's append; `take_fresh` and `add` look at them together.
    """

    def __init__(self, kept: str, limit_bytes: int) -> None:
        self.fresh: list[str] = []
        self._parts: list[str] = [kept] if kept else []
        self._size_bytes = utf8_length(kept)
        self._limit_bytes = limit_bytes

    def __bool__(self) -> bool:
        """True once any text was kept or yielded."""
        return bool(self._parts)

    @property
    def text(self) -> str:
        """All text: what was kept, and what was yielded behind it."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def take_fresh(self) -> list[str]:
        """Removes and returns the fresh pieces."""
        pieces = self.fresh.copy()
        self.fresh.clear()
        return pieces

    def add(self, text: str) -> int:
        """Takes a text; returns its UTF-8 bytes. Raises OutputTooLarge, or UnicodeEncodeError for lone surrogates."""
        size_bytes = utf8_length(text)
        if self._size_bytes + size_bytes > self._limit_bytes:
            raise OutputTooLarge(f"the text is over {self._limit_bytes} bytes")
        self._size_bytes += size_bytes
        self._parts.append(text)
        return size_bytes
