"""skillstream's client for code without asyncio; it runs no workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skillstream import SyncClient

from .program import SyncSend, main_sync
from .recording import URL
from .skillstream_program import work


@contextmanager
def client() -> Iterator[SyncSend]:
    """A client whose `send` submits a no-op task and returns once the broker has it queued."""
    with SyncClient(URL) as opened:
        yield lambda sent: opened.submit("bench", "noop", repr(sent))


if __name__ == "__main__":
    main_sync(work, client)
