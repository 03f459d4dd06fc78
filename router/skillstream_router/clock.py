"""Time as the router's roles see it, so that tests can move it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a role reads the time."""

    def now_ms(self) -> int:
        """Unix time in ms."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Unix time in ms."""
        return time.time_ns() // 1_000_000
