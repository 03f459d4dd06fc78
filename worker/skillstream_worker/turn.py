"""How long a skill that never awaits may hold the event loop."""

from __future__ import annotations

from skillstream.clock import Clock

TURN_S = 0.0005
FEWEST, MOST = 1, 16_000
_NO_TIME_S = 1e-9


class Turn:
    """Responsible for how many characters a skill may yield until the event loop has its turn.

    The first piece has its turn at once; later as many characters come as took `TURN_S` seconds the turn before, since
    a look at the clock for each piece would take as long as all the rest.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chars = FEWEST
        self._began_s = 0.0

    def begin(self) -> int:
        """Called behind a turn of the event loop: how many characters may come until `end`."""
        self._began_s = self._clock.elapsed_s()
        return self._chars

    def end(self) -> None:
        """Called where all of them came without a turn of the event loop."""
        held_s = max(self._clock.elapsed_s() - self._began_s, _NO_TIME_S)
        self._chars = max(FEWEST, min(MOST, int(self._chars * TURN_S / held_s)))
