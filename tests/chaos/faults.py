"""The faults of a chaos run: a seeded list, with times and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from random import Random

_WEIGHTS = {
    "kill worker": 4, "stop worker": 1, "pause worker": 3, "kill router": 2, "stop router": 0.5, "pause router": 1,
    "kill broker": 1.5, "pause broker": 0.7, "cut": 10, "drop": 3, "delay": 3, "swallow": 2,
}  # fmt: skip
_EACH_S = 0.6
_FIRST_S = 1.0
_MOST_BYTES = 200_000


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong: what, when, with which of its kind (a number, taken modulo those there are).

    `seconds` is how long a process stays away or a wire is bad, `delay_s` what a wire holds each piece back; `bytes_passed`
    is what goes through before a cut, upwards or not: anywhere in a command, a flight of entries, or an answer.
    """

    kind: str
    at_s: float
    target: int
    seconds: float
    delay_s: float
    bytes_passed: int
    is_upward: bool


def faults(seed: int, seconds: float) -> list[Fault]:
    """All faults of a run, in the order of their times."""
    chance = Random(f"faults {seed}")
    found: list[Fault] = []
    at_s = _FIRST_S
    while at_s < seconds:
        kind = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        duration_s = chance.uniform(0.0, 1.5)
        if kind.startswith("pause"):
            duration_s = chance.uniform(0.5, 5.0)  # the lease is 2 s: most pauses outlast it
        size_bytes = round(exp(chance.uniform(0.0, log(_MOST_BYTES))))
        target, delay_s, is_upward = chance.randrange(1000), chance.uniform(0.01, 0.2), chance.random() < 0.5
        found.append(Fault(kind, at_s, target, duration_s, delay_s, size_bytes, is_upward))
        at_s += chance.expovariate(1 / _EACH_S)
    return found
