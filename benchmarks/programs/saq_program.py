"""saq, as it ships."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker

from .program import Send, main
from .recording import CONCURRENCY, URL, record, wait_for_the_others


async def noop(ctx: dict[str, Any], *, sent: float) -> None:
    """The task."""
    record(sent)


async def startup(ctx: dict[str, Any]) -> None:
    """Called by the worker before it takes tasks."""
    wait_for_the_others()


def work() -> None:
    """Runs a worker."""

    async def run() -> None:
        worker = Worker(Queue.from_url(URL), functions=[noop], concurrency=CONCURRENCY, startup=startup)
        await worker.start()

    asyncio.run(run())


@asynccontextmanager
async def client() -> AsyncIterator[Send]:
    """A client."""
    queue = Queue.from_url(URL)
    await queue.connect()
    yield lambda sent: queue.enqueue("noop", sent=sent)
    await queue.disconnect()


if __name__ == "__main__":
    main(work, client)
