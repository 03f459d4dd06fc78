"""How yielded text becomes chunk entries: merged by time, size and boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from skillstream.cutting import Boundary


@dataclass(frozen=True, slots=True)
class Chunking:
    """Rules for merging what a skill yields into chunk entries.

    The first chunk goes at once. Later ones are merged while a write is under way and until `max_delay` seconds
    after the last one, or until `max_chars` have gathered; 0 characters means that each yield is its own entry.
    With a `boundary` (none, word, sentence, paragraph, markdown) what stands behind the last one waits for
    the next, but never beyond `max_chars` or the end.
    """

    max_delay: float = 0.02
    max_chars: int = 2000
    boundary: Boundary | str = Boundary.NONE

    def __post_init__(self) -> None:
        """Raises ValueError for values out of range."""
        object.__setattr__(self, "boundary", Boundary(self.boundary))
        if not 0 <= self.max_delay <= 60:
            raise ValueError(f"max_delay {self.max_delay} s is not between 0 and 60")
        if self.max_chars < 0:
            raise ValueError(f"max_chars {self.max_chars} is negative")

    @classmethod
    def off(cls) -> Self:
        """No merging: each yield is its own entry."""
        return cls(max_delay=0, max_chars=0)

    @property
    def merges(self) -> bool:
        """False where each yield is its own entry."""
        return self.max_chars > 0
