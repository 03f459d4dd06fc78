"""Time, as one object that tests can replace."""

from __future__ import annotations

import time


class Clock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Unix time in ms."""
        return time.time_ns() // 1_000_000

    def elapsed_s(self) -> float:
        """Seconds on a clock that only goes forward."""
        return time.monotonic()
