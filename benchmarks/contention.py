"""The same tasks with 2, 4 and 8 worker processes on one queue: the total stays, and no task costs more commands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from .contenders import ARQ_FAST, OURS, TASKIQ, Contender
from .environments import Environments
from .measuring import Lab, Ratio, Report, Samples, Target
from .noops import EXECUTED, RATE, noops, noops_sent
from .server import Server, running_server

WORKERS = (1, 2, 4, 8)
SENT = "commands sent by workers/task"
_COUNTED = 4000
_RISE = 1.05
"""What a worker sends at its start and end is not of any task: so much counts as no rise."""


def measure(lab: Lab) -> Report:
    """Runs skillstream with each number of workers in turn, beside the peers where they are compared."""
    ours, theirs = lab.size(20_000, 3_000), lab.size(5_000, 0)
    environments = lab.environments
    with running_server() as server:
        measures = {
            _name(OURS, workers): partial(_ours, environments, server, ours, lab.size(_COUNTED, 500), workers)
            for workers in WORKERS
        }
        peers = ((TASKIQ, 2), (ARQ_FAST, 1), (ARQ_FAST, 8))
        measures |= {_name(peer, workers): partial(noops, peer, environments, server, theirs, workers) for peer, workers in peers}
        samples = lab.alternate(measures, required=[_name(OURS, workers) for workers in WORKERS])
    return Report(
        "contention",
        (*samples.figures(RATE, "tasks/s"), *samples.figures(SENT, ""), *samples.figures(EXECUTED, "")),
        (
            *samples.ratio(
                "no-op tasks/s, 2 worker processes", _name(OURS, 2), _name(TASKIQ, 2), figure=RATE, target=Target(2.5)
            ),
            _against_best(samples),
            *samples.ratio(
                "commands sent by workers/task, 8 worker processes", _name(OURS, 8), _name(OURS, 1),
                figure=SENT, target=Target(_RISE, is_ceiling=True), better="lower",
            ),
            *samples.ratio("arq: no-op tasks/s, 8 worker processes", _name(ARQ_FAST, 8), _name(ARQ_FAST, 1), figure=RATE),
        ),
        samples.notes,
    )  # fmt: skip


def _ours(environments: Environments, server: Server, tasks: int, counted: int, workers: int) -> Mapping[str, float]:
    found = noops(OURS, environments, server, tasks, workers)
    return {**found, SENT: noops_sent(OURS, environments, server, counted, workers)[1]}


def _against_best(samples: Samples) -> Ratio:
    rounds = zip(*(samples.of(_name(OURS, workers), RATE) for workers in WORKERS), strict=True)
    return Ratio(
        "no-op tasks/s, 8 worker processes",
        "skillstream, best of 1, 2, 4 and 8 workers",
        tuple(rates[-1] / max(rates) for rates in rounds),
        target=Target(0.85),
    )


def _name(contender: Contender, workers: int) -> str:
    return f"{contender.name}, {workers} worker{'s' if workers > 1 else ''}"
