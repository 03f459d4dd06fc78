"""Commands: of an idle worker in a second, and of a no-op task from its submission to its settlement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from .contenders import ARQ, OURS, TASKIQ, Contender, a_run
from .environments import Environments
from .measuring import Lab, Report, Target
from .noops import noops_sent
from .server import Server, running_server

SENT, EXECUTED = "commands sent/task", "commands executed/task"
IDLE_SENT, IDLE_EXECUTED = "commands sent/s by an idle worker", "commands executed/s for an idle worker"
_SETTLE_DOWN_S = 2.0


def measure(lab: Lab) -> Report:
    """Counts what clients send as MONITOR shows it, and what the server executes as INFO commandstats has it."""
    contenders = (OURS,) if lab.is_quick else (OURS, ARQ, TASKIQ)
    lab = replace(lab, rounds=1) if lab.is_quick else lab  # counts differ little between rounds
    tasks, watched_s = lab.size(4_000, 1_000), 6.0 if lab.is_quick else 20.0
    with running_server() as server:
        measures = {
            contender.name: partial(_count, contender, lab.environments, server, tasks, watched_s) for contender in contenders
        }
        samples = lab.alternate(measures, required=[OURS.name])
    return Report(
        "idle",
        tuple(figure for name in (SENT, EXECUTED, IDLE_SENT, IDLE_EXECUTED) for figure in samples.figures(name, "")),
        (
            *samples.value(SENT, OURS.name, SENT, unit="commands", target=Target(8, is_ceiling=True)),
            *samples.value(IDLE_SENT, OURS.name, IDLE_SENT, unit="commands/s", target=Target(1, is_ceiling=True)),
        ),
        samples.notes,
    )


def _count(contender: Contender, environments: Environments, server: Server, tasks: int, watched_s: float) -> Mapping[str, float]:
    before = server.counts()
    sent = sum(noops_sent(contender, environments, server, tasks, 1))
    executed = server.counts().since(before).calls.total() / tasks
    with a_run(contender, environments, server) as run:
        run.submit(1)  # a worker that never had a task may still be setting up
        run.start_workers()
        run.go()
        run.seconds_until_done(1)
        time.sleep(_SETTLE_DOWN_S)
        before = server.counts()
        with server.commands_sent() as idle:
            time.sleep(watched_s)
        idle_executed = server.counts().since(before).calls.total() / watched_s
    return {SENT: sent, EXECUTED: executed, IDLE_SENT: idle.total() / watched_s, IDLE_EXECUTED: idle_executed}
