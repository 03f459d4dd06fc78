"""Pauses between tries: doubled each time, with chance in them, so that many who lost the same server do not return as one."""

from __future__ import annotations

import random


class Backoff:
    """Responsible for the next pause in seconds: between half of and the whole of a bound that doubles up to `longest_s`."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._bound_s = first_s

    def __repr__(self) -> str:
        return f"<Backoff next<={self._bound_s:g}s>"

    def next_s(self) -> float:
        """The pause before the next try."""
        bound_s, self._bound_s = self._bound_s, min(self._bound_s * 2, self._longest_s)
        return bound_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begins anew, after a success."""
        self._bound_s = self._first_s
