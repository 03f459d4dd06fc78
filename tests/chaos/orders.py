"""The tasks of a chaos run: a seeded list of orders and of what clients do with each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.acceptance.order import Order

_EXHAUSTED = "failed:attempts_exhausted"
_PRICES = {"count": 20_000, "resume": 30_000, "nap": 50_000, "once": 70_000, "broken": 110_000, "ask": 130_000}
_WEIGHTS = {
    "count": 12, "resume": 10, "nap": 8, "wordy": 4, "again": 4, "flaky": 3, "once": 5, "broken": 3, "ask": 3, "shapes": 3,
    "overtime": 2, "linger": 4, "block": 0.3, "poison": 0.3,
}  # fmt: skip
_SAYINGS = {
    "nap": "slept", "again": "heard", "flaky": "called", "once": "sent once", "broken": "half", "ask": "which one?", "shapes": "",
    "overtime": "begun", "linger": "waiting", "block": "blocked", "poison": "drunk",
}  # fmt: skip
_PIECES: dict[str, Callable[[int], str]] = {"count": "{} ".format, "resume": "{} é".format, "wordy": lambda n: f"{n:06d}" * 500}
_FINALS = {
    "once": {"completed", "failed:interrupted"}, "broken": {"failed:skill_error", _EXHAUSTED},
    "ask": {"input-required", _EXHAUSTED}, "overtime": {"failed:timeout", _EXHAUSTED}, "linger": {"canceled"},
    "poison": {_EXHAUSTED},
}  # fmt: skip
"""Ends of skills that may not simply complete, or run out of attempts."""
_EACH_S = 0.1
_BURST = 60
_BURST_CHANCE = 0.008


@dataclass
class Errand:
    """An order and what is done with it: when it is submitted, and seconds after which it is canceled, if it is.

    `deadline_after_s` is how long the task may take from then on. `copies` clients submit it besides; `is_followed` says
    that one reads along, `is_contested` that another request is sent under its id.
    """

    order: Order
    at_s: float
    cancel_after_s: float | None = None
    deadline_after_s: float | None = None
    copies: int = 0
    is_followed: bool = False
    is_contested: bool = False


def errands(seed: int, seconds: float) -> list[Errand]:
    """All errands of a run, in the order of their times."""
    chance = Random(f"errands {seed}")
    return [_errand(chance, f"{seed}-{number}", at_s) for number, at_s in enumerate(_moments(chance, seconds))]


def _moments(chance: Random, seconds: float) -> Iterator[float]:
    at_s = 0.0
    while at_s < seconds:
        yield from [at_s] * (_BURST if chance.random() < _BURST_CHANCE else 1)
        at_s += chance.expovariate(1 / _EACH_S)


def _errand(chance: Random, task_id: str, at_s: float) -> Errand:
    skill = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    wanted, text, finals = _wanted(chance, skill)
    errand = Errand(
        Order(
            task_id=task_id,
            skill=skill,
            message=json.dumps(wanted),
            finals=frozenset(finals),
            text=text,
            payer=f"payer-{chance.randrange(3)}" if chance.random() < 0.7 else None,
            context_id=f"context-{chance.randrange(20)}" if chance.random() < 0.5 else None,
            delay_ms=chance.randrange(200, 4000) if chance.random() < 0.1 else 0,
            price_micros=_PRICES.get(skill, 0),
        ),
        at_s,
        copies=chance.choices((0, 1, 3), (8, 2, 1))[0],
        is_followed=chance.random() < 0.3,
        is_contested=chance.random() < 0.05,
    )
    if skill == "linger":
        errand.cancel_after_s = chance.uniform(0.0, 6.0)
    elif chance.random() < 0.1:
        errand.cancel_after_s = chance.uniform(0.0, 2.0)
        errand.order.finals |= {"canceled"}
    elif skill in ("count", "nap") and chance.random() < 0.05:
        errand.deadline_after_s = chance.uniform(1.0, 4.0)
        errand.order.finals |= {"failed:deadline_exceeded"}
    return errand


def _wanted(chance: Random, skill: str) -> tuple[dict[str, Any], str, set[str]]:
    """The message of a skill, what it says, and the ends that the faults of a run may bring it to."""
    pieces, pause_s = chance.randrange(1, 40), round(chance.uniform(0.0, 0.08), 3)
    wanted: dict[str, dict[str, Any]] = {
        "count": {"pieces": pieces, "pause_s": pause_s},
        "resume": {"pieces": pieces, "pause_s": pause_s},
        "wordy": {"pieces": pieces},
        "shapes": {"pieces": pieces},
        "nap": {"pause_s": pause_s * 20},
        "once": {"pause_s": pause_s * 10},
        "again": {"times": chance.randrange(1, 4), "pause_s": pause_s * 5},
    }
    text = _SAYINGS[skill] if skill in _SAYINGS else "".join(_PIECES[skill](number) for number in range(pieces))
    return wanted.get(skill, {}), text, _FINALS.get(skill, {"completed", _EXHAUSTED})
