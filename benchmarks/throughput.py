"""No-op tasks a second with one worker process, each with its submitted, working and final events, settled and rung."""

from __future__ import annotations

from functools import partial

from .contenders import ARQ, ARQ_FAST, FLOOR, OURS, TASKIQ
from .measuring import Lab, Report, Target
from .noops import RATE, noops
from .server import running_server


def measure(lab: Lab) -> Report:
    """Runs all contenders on one server, each alone."""
    sizes = {OURS: lab.size(20_000, 3_000), FLOOR: lab.size(20_000, 3_000)}
    if not lab.is_quick:
        sizes |= dict.fromkeys((TASKIQ, ARQ_FAST, ARQ), lab.size(5_000, 0))
    with running_server() as server:
        measures = {
            contender.name: partial(noops, contender, lab.environments, server, tasks, 1) for contender, tasks in sizes.items()
        }
        samples = lab.alternate(measures, required=[OURS.name])
    name = "no-op tasks/s, 1 worker process"
    return Report(
        "throughput",
        (
            *samples.figures(RATE, "tasks/s"),
            *samples.figures("worker CPU µs/task", "µs"),
            *samples.figures("broker CPU µs/task", "µs"),
        ),
        (
            *samples.ratio(name, OURS.name, TASKIQ.name, figure=RATE, target=Target(4)),
            *samples.ratio(name, OURS.name, ARQ_FAST.name, figure=RATE, target=Target(6)),
            *samples.ratio(name, OURS.name, ARQ.name, figure=RATE),
            *samples.ratio(name, OURS.name, FLOOR.name, figure=RATE),
        ),
        samples.notes,
    )
