"""One measurement of no-op tasks: how fast they run, and what they cost workers and broker."""

from __future__ import annotations

import time
from collections.abc import Mapping

from .contenders import Contender, a_run
from .environments import Environments
from .server import Server

RATE = "tasks/s"
EXECUTED = "commands executed/task"
_LAST_ANSWERS_S = 0.3


def noops(contender: Contender, environments: Environments, server: Server, tasks: int, workers: int) -> Mapping[str, float]:
    """Queues all tasks, then lets workers go; processor times are of the same stretch, submission left out.

    The commands executed are those of INFO commandstats, in which what scripts and MULTI run counts too.
    """
    with a_run(contender, environments, server) as run:
        run.submit(tasks)
        run.start_workers(workers)
        cpu_s, before = run.workers_cpu_s, server.counts()
        run.go()
        seconds = run.seconds_until_done(tasks)
        if not contender.is_ours:
            time.sleep(_LAST_ANSWERS_S)  # a peer is done when its last task has started: its acknowledgement is to come
        spent = server.counts().since(before)
        return {
            RATE: tasks / seconds,
            "worker CPU µs/task": 1e6 * (run.workers_cpu_s - cpu_s) / tasks,
            "broker CPU µs/task": 1e6 * spent.cpu_s / tasks,
            EXECUTED: spent.calls.total() / tasks,
            "reads of the broker/task": spent.reads / tasks,
        }


def noops_sent(contender: Contender, environments: Environments, server: Server, tasks: int, workers: int) -> tuple[float, float]:
    """Commands that clients send for a task: by its submission, and by workers until all tasks are done. Nothing is timed."""
    with a_run(contender, environments, server) as run:
        with server.commands_sent() as submitting:
            run.submit(tasks)
        run.start_workers(workers)
        with server.commands_sent() as running:
            run.go()
            run.seconds_until_done(tasks)
            if not contender.is_ours:
                time.sleep(_LAST_ANSWERS_S)
    return submitting.total() / tasks, running.total() / tasks
