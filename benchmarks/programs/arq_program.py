"""arq. Variants: default (poll_delay 0.5 s) and fast (0.01 s)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

from .program import Send, main
from .recording import CONCURRENCY, URL, VARIANT, record, wait_for_the_others


async def noop(ctx: dict[str, Any], sent: float) -> None:
    """The task."""
    record(sent)


async def startup(ctx: dict[str, Any]) -> None:
    """Called by the worker before it takes tasks."""
    wait_for_the_others()


def work() -> None:
    """Runs a worker."""
    poll_delay = {"default": 0.5, "fast": 0.01}[VARIANT]
    Worker(
        functions=[noop],
        redis_settings=RedisSettings.from_dsn(URL),
        max_jobs=CONCURRENCY,
        on_startup=startup,
        poll_delay=poll_delay,
    ).run()


@asynccontextmanager
async def client() -> AsyncIterator[Send]:
    """A client."""
    pool = await create_pool(RedisSettings.from_dsn(URL))
    yield lambda sent: pool.enqueue_job("noop", sent)
    await pool.aclose()


if __name__ == "__main__":
    main(work, client)
