"""skillstream's client; its workers are the command `skillstream worker benchmarks.agents:agent`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from skillstream import Client

from .program import Send, main
from .recording import URL


@asynccontextmanager
async def client() -> AsyncIterator[Send]:
    """A client whose `send` submits a no-op task and returns once the broker has it queued."""
    async with Client(URL) as opened:
        yield lambda sent: opened.submit("bench", "noop", repr(sent))


def work() -> None:
    """Workers are started by the command of users."""
    raise SystemExit("run: python -m skillstream worker benchmarks.agents:agent")


if __name__ == "__main__":
    main(work, client)
