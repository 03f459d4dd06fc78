"""Submissions a second of one client process, from 100 concurrent callers and one at a time; no worker runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from .contenders import DRAMATIQ, FLOOR, OURS, OURS_SYNC, SAQ, TWO_STEPS, Contender, a_run
from .environments import Environments
from .measuring import Lab, Report, Target
from .server import Server, running_server

CONCURRENT, SINGLE = "submissions/s, 100 callers", "submissions/s, one at a time"
SINGLE_SYNC, SINGLE_BARE = f"{SINGLE}, SyncClient", f"{SINGLE}, bare socket"
CALLERS = 100


def measure(lab: Lab) -> Report:
    """Runs all clients on one server, on asyncio's own loop but for those of synchronous code, which have one caller only."""
    ours, theirs, single = lab.size(20_000, 5_000), lab.size(10_000, 0), lab.size(5_000, 1_500)
    sizes = {OURS: (ours, single), OURS_SYNC: (0, single), TWO_STEPS: (0, single), FLOOR: (ours, single)}
    if not lab.is_quick:
        sizes |= {SAQ: (theirs, single), DRAMATIQ: (0, single)}
    with running_server() as server:
        measures = {
            contender.name: partial(_submit, contender, lab.environments, server, *counts) for contender, counts in sizes.items()
        }
        samples = lab.alternate(measures, required=[OURS.name])
    return Report(
        "submission",
        (*samples.figures(CONCURRENT, "/s"), *samples.figures(SINGLE, "/s")),
        (
            *samples.ratio(CONCURRENT, OURS.name, SAQ.name, figure=CONCURRENT, target=Target(3)),
            *samples.ratio(SINGLE, OURS.name, DRAMATIQ.name, figure=SINGLE, target=Target(0.8)),
            *samples.ratio(SINGLE_SYNC, OURS_SYNC.name, DRAMATIQ.name, figure=SINGLE, target=Target(0.8)),
            *samples.ratio(SINGLE_BARE, TWO_STEPS.name, DRAMATIQ.name, figure=SINGLE),
            *samples.ratio(CONCURRENT, OURS.name, FLOOR.name, figure=CONCURRENT),
            *samples.ratio(SINGLE, OURS.name, FLOOR.name, figure=SINGLE),
        ),
        samples.notes,
    )


def _submit(
    contender: Contender, environments: Environments, server: Server, concurrent: int, single: int
) -> Mapping[str, float]:
    found = {}
    for name, count, callers in ((CONCURRENT, concurrent, CALLERS), (SINGLE, single, 1)):
        if count:
            with a_run(contender, environments, server) as run:
                found[name] = count / run.submit(count, callers)
    return found
