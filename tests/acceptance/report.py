"""What the checker found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

Entry = tuple[tuple[int, int], dict[str, str]]


@dataclass
class Report:
    """Counts, and violations as sentences.

    `states` counts final states, `ends` likewise with the error code of failures; `retries` are attempts beyond the
    first of each task, `followed` tasks whose follower was checked.
    """

    states: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    chunks: int = 0
    retries: int = 0
    followed: int = 0
    charged_micros: int = 0
    violations: list[str] = field(default_factory=list)

    def expect(self, holds: bool, sentence: str) -> None:
        """Notes a violation where something does not hold."""
        if not holds:
            self.violations.append(sentence)
