"""taskiq with the streams broker of taskiq-redis and no result backend: its default, which keeps nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from taskiq import TaskiqEvents
from taskiq_redis import RedisStreamBroker

from .program import Send, main
from .recording import CONCURRENCY, URL, record, wait_for_the_others

broker = RedisStreamBroker(URL, consumer_id="0")


@broker.task(task_name="noop")
async def noop(sent: float) -> None:
    """The task."""
    record(sent)


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def startup(state: Any) -> None:
    """Called by the worker before it takes tasks."""
    wait_for_the_others()


def work() -> None:
    """Becomes taskiq's own command for one worker process."""
    command = str(Path(sys.executable).with_name("taskiq"))
    options = ["--workers", "1", "--max-async-tasks", str(CONCURRENCY), "--log-level", "WARNING"]
    os.execv(command, [command, "worker", "benchmarks.programs.taskiq_program:broker", "--app-dir", os.getcwd(), *options])


@asynccontextmanager
async def client() -> AsyncIterator[Send]:
    """A client."""
    await broker.startup()
    yield noop.kiq
    await broker.shutdown()


if __name__ == "__main__":
    main(work, client)
