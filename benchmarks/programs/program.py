"""The command line that every contender's program has.

`worker` runs a worker. `submit N CALLERS` submits N tasks from so many callers at once, prints {"seconds": …} and stays
connected until its standard input ends, so that its commands can be counted. `latency N INTERVAL_S` submits one task
each interval.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from itertools import repeat

Send = Callable[[float], Awaitable[object]]
SyncSend = Callable[[float], object]
_JITTER = 0.5
"""Intervals differ by up to so much of themselves either way, so that no poller is met at one phase only."""


def main(work: Callable[[], None], client: Callable[[], AbstractAsyncContextManager[Send]]) -> None:
    """Runs the verb that the command line names, for a contender with an asyncio client."""
    match sys.argv[1:]:
        case ["worker"]:
            work()
        case ["submit", count, callers]:
            asyncio.run(_submit(client, int(count), int(callers)))
        case ["latency", count, interval_s]:
            asyncio.run(_latency(client, int(count), float(interval_s)))


def main_sync(work: Callable[[], None], client: Callable[[], AbstractContextManager[SyncSend]]) -> None:
    """The same for a contender whose client is synchronous: it has one caller, whatever was asked for."""
    match sys.argv[1:]:
        case ["worker"]:
            work()
        case ["submit", count, _]:
            with client() as send:
                begun_s = time.perf_counter()
                for _ in repeat(None, int(count)):
                    send(0.0)
                _tell(time.perf_counter() - begun_s)


async def _submit(client: Callable[[], AbstractAsyncContextManager[Send]], count: int, callers: int) -> None:
    async with client() as send:
        left = repeat(None, count)

        async def call() -> None:
            for _ in left:  # shared: each caller takes the next one
                await send(0.0)

        begun_s = time.perf_counter()
        await asyncio.gather(*(call() for _ in range(callers)))
        _tell(time.perf_counter() - begun_s)


async def _latency(client: Callable[[], AbstractAsyncContextManager[Send]], count: int, interval_s: float) -> None:
    async with client() as send:
        for _ in range(count):
            await asyncio.sleep(interval_s * random.uniform(1 - _JITTER, 1 + _JITTER))
            await send(time.time())
        _tell(0.0)


def _tell(seconds: float) -> None:
    print(json.dumps({"seconds": seconds}), flush=True)
    sys.stdin.read()
