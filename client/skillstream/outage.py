"""What a process's log says of a broker that is away: once, then ever more seldom, and once when it is back."""

from __future__ import annotations

import logging

from skillstream_schemas.errors import SkillstreamError

from .clock import Clock

log = logging.getLogger(__name__)
_FIRST_SILENCE_S = 10.0
_LONGEST_SILENCE_S = 600.0


class Outage:
    """Responsible for one line instead of one for each role and each try.

    Roles tell `met` each time that they fail, and `over` each time that they do not; `what` names the role's work.
    The first failure is a line, another is one behind a silence that doubles, and so is a role that fails for another reason.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failing: dict[str, str] = {}
        self._began_s = 0.0
        self._silent_until_s = 0.0
        self._silence_s = _FIRST_SILENCE_S

    def __repr__(self) -> str:
        return f"<Outage failing={sorted(self._failing)}>"

    def met(self, what: str, error: SkillstreamError) -> None:
        """Takes note of a failure."""
        now_s = self._clock.elapsed_s()
        if not self._failing:
            self._began_s, self._silent_until_s, self._silence_s = now_s, now_s, _FIRST_SILENCE_S
        is_new = error.code not in self._failing.values()
        self._failing[what] = error.code
        if is_new or now_s >= self._silent_until_s:
            log.warning("%s: %s; tried again until it works, next line in %g s", what, error, self._silence_s)
            self._silent_until_s = now_s + self._silence_s
            self._silence_s = min(self._silence_s * 2, _LONGEST_SILENCE_S)

    def over(self, what: str) -> None:
        """Takes note of a success; cheap where nothing failed."""
        if self._failing and self._failing.pop(what, None) is not None and not self._failing:
            log.warning("all works again, after %.0f s", self._clock.elapsed_s() - self._began_s)
