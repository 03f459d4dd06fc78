"""Asking for another attempt, and how long to wait before it."""

from __future__ import annotations

import random

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 60.0


class Retry(Exception):
    """Raised by a skill that wants another attempt; `delay` is seconds until it may start, None for backoff."""

    def __init__(self, delay: float | None = None, reason: str = "") -> None:
        if delay is not None and not 0 <= delay <= 7 * 86_400:
            raise ValueError(f"a delay of {delay} s is not between 0 and a week")
        super().__init__(reason or "the skill asked for another attempt")
        self.delay_s = delay


def backoff_s(strikes: int) -> float:
    """Seconds before the attempt after `strikes` failed ones: doubling, with full jitter, bounded."""
    longest_s: float = min(_FIRST_DELAY_S * 2 ** min(strikes - 1, 16), _LONGEST_DELAY_S)
    return random.uniform(longest_s / 2, longest_s)
