"""dramatiq, as it ships: a plain actor on eight threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Middleware

from .program import SyncSend, main_sync
from .recording import URL, record, wait_for_the_others


class StartTogether(Middleware):
    """Responsible for holding a worker back until all are ready."""

    def after_process_boot(self, broker: Any) -> None:
        """Called by the worker before it takes tasks."""
        wait_for_the_others()


broker = RedisBroker(url=URL)
broker.add_middleware(StartTogether())
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="noop")
def noop(sent: float) -> None:
    """The task."""
    record(sent)


def work() -> None:
    """Becomes dramatiq's own command for one worker process."""
    command = str(Path(sys.executable).with_name("dramatiq"))
    os.execv(command, [command, "benchmarks.programs.dramatiq_program", "-p", "1", "-t", "8", "--path", os.getcwd()])


@contextmanager
def client() -> Iterator[SyncSend]:
    """A client."""
    yield noop.send


if __name__ == "__main__":
    main_sync(work, client)
