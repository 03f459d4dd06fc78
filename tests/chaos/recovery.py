"""Measures how long a task stands still after kill -9 of its worker, until its next attempt is opened.

`python -m tests.chaos.recovery [--lease S ...] [--rounds N]` prints p50 and max for each lease. A round has three victims
with one task each, killed at random moments of their leases, and one worker that takes over.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import tempfile
import time
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from skillstream import Client
from skillstream_schemas.event import StatusEvent
from skillstream_schemas.settings import Settings
from tests.support.processes import Process
from tests.support.redis_server import RedisServer, valkey_binary

from .battlefield import APPEND_ALWAYS
from .storm_agent import agent

_VICTIMS = 3
_RENEWALS_PER_LEASE = 3
_READY_S = 30.0


async def measure(lease_s: float, rounds: int) -> list[float]:
    """Seconds from each kill to the opening of the next attempt, by the broker's clock, which is this machine's."""
    found: list[float] = []
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="skillstream-recovery-"))
        server = stack.enter_context(RedisServer(valkey_binary(), *APPEND_ALWAYS, keep_data=Path(folder)))
        client = await stack.enter_async_context(Client(settings=Settings(redis_url=server.url)))
        for _ in range(rounds):
            found += await _round(client, server.url, lease_s)
    return found


async def _round(client: Client, url: str, lease_s: float) -> list[float]:
    victims = [await _started(url, lease_s, concurrency=1) for _ in range(_VICTIMS)]
    takers: list[Process] = []
    try:
        tasks = [await client.submit(agent.name, "linger", "{}") for _ in victims]
        for task in tasks:
            await _opened_at_s(client, task.id, 1)
        takers.append(await _started(url, lease_s, concurrency=100))

        async def kill(victim: Process) -> None:
            await asyncio.sleep(random.uniform(0, lease_s / _RENEWALS_PER_LEASE))
            victim.send(signal.SIGKILL)
            killed_at_s[victim.pid] = time.time()

        killed_at_s: dict[int, float] = {}
        await asyncio.gather(*(kill(victim) for victim in victims))
        found = []
        for task in tasks:
            worker, opened_at_s = await _opened_at_s(client, task.id, 1), await _opened_at_s(client, task.id, 2)
            pid = int(worker[0].rsplit("-", 2)[1])
            found.append(opened_at_s[1] - killed_at_s[pid])
            await task.cancel("measured")
        return found
    finally:
        for process in (*victims, *takers):
            process.kill()


async def _opened_at_s(client: Client, task_id: str, attempt: int) -> tuple[str, float]:
    """The worker that opened an attempt, and when."""
    async with aclosing(client.task(task_id).events()) as events:
        async for event in events:
            if isinstance(event, StatusEvent) and event.worker is not None and event.id.attempt == attempt:
                return event.worker, event.at / 1000
    raise AssertionError(f"task {task_id} ended before attempt {attempt}")


async def _started(url: str, lease_s: float, *, concurrency: int) -> Process:
    arguments = ("worker", "tests.chaos.storm_agent:agent", "--redis", url, "--lease", str(lease_s))
    process = Process(*arguments, "--concurrency", str(concurrency), env={"SKILLSTREAM_LOG_LEVEL": "WARNING"})
    await asyncio.to_thread(process.wait_for, "is ready", _READY_S)
    return process


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.recovery", description=__doc__)
    parser.add_argument("--lease", type=float, nargs="+", default=[5.0, 15.0])
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    for lease_s in arguments.lease:
        found = asyncio.run(measure(lease_s, arguments.rounds))
        print(
            f"lease {lease_s:g} s: {len(found)} kills, next attempt after p50 {statistics.median(found):.2f} s, "
            f"min {min(found):.2f} s, max {max(found):.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
