"""A flood: many tasks submitted at once to one worker and one router, each to end once. `make flood` runs 100,000.

Prints one line of figures. The check reads streams, queue and database from outside.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from skillstream import Client
from skillstream_schemas import keys as arq_keys
from skillstream_schemas.settings import Settings
from tests.support import cli_agent
from tests.support.processes import Process
from tests.support.redis_server import RedisServer, valkey_binary

AGENT = cli_agent.agent.name
_AT_ONCE = 2000
_READ_AT_ONCE = 1000
_MIB = 1024


@dataclass(frozen=True)
class Flood:
    """What became of a flood: streams by what is wrong with them, and figures."""

    tasks: int
    faults: Counter[str]
    recorded: int
    queued: int
    rings: int
    submit_s: float
    end_s: float
    longest_queue: int
    worker_mib: int
    router_mib: int
    broker_mib: int

    def line(self) -> str:
        """All figures."""
        return (
            f"{self.tasks} tasks: submitted in {self.submit_s:.1f} s, all ended and recorded {self.end_s:.1f} s after the first; "
            f"longest queue {self.longest_queue}; peaks: worker {self.worker_mib} MiB, router {self.router_mib} MiB, "
            f"broker {self.broker_mib} MiB; left: {self.queued} jobs, {self.rings} rings, faults {dict(self.faults) or 'none'}"
        )


async def flood(tasks: int, folder: Path, *, patience_s: float) -> Flood:
    """Floods a broker, a worker and a router of its own; fails where not all is recorded within `patience_s`."""
    database = folder / "flood.db"
    with RedisServer(valkey_binary()) as server, server.client() as broker:
        outside: Any = broker
        with (
            Process("worker", "tests.support.cli_agent:agent", "--redis", server.url) as worker,
            Process("router", "--redis", server.url, "--database", f"sqlite:///{database}") as router,
        ):
            worker.wait_for("is ready", 30)
            router.wait_for("is ready", 30)
            began_s = time.monotonic()
            longest, task_ids = await _submit(Settings(redis_url=server.url), tasks, outside)
            submit_s = time.monotonic() - began_s
            while (recorded := _recorded(database)) < tasks or _rings(outside):
                assert time.monotonic() - began_s < patience_s, f"{recorded} of {tasks} tasks ended within {patience_s} s"
                longest = max(longest, cast(int, outside.zcard(arq_keys.queue(AGENT))))
                await asyncio.sleep(0.2)
            end_s = time.monotonic() - began_s
            peaks = _peak_mib(worker.pid), _peak_mib(router.pid)
            for process in (worker, router):
                process.send(signal.SIGTERM)
                assert process.wait(30) == 0
        return Flood(
            tasks, _faults(outside, Settings(redis_url=server.url), task_ids), _recorded(database),
            cast(int, outside.zcard(arq_keys.queue(AGENT))), _rings(outside),
            submit_s, end_s, longest, *peaks, int(outside.info("memory")["used_memory_peak"]) // _MIB // _MIB,
        )  # fmt: skip


async def _submit(settings: Settings, tasks: int, outside: Any) -> tuple[int, list[str]]:
    """Submits as fast as may be; returns the longest queue that was seen, and the tasks' ids."""
    longest, task_ids = 0, list[str]()
    async with Client(settings=settings) as client:
        for first in range(0, tasks, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, tasks))
            submitted = await asyncio.gather(*(client.submit(AGENT, "echo", str(number)) for number in numbers))
            task_ids += [task.id for task in submitted]
            longest = max(longest, cast(int, outside.zcard(arq_keys.queue(AGENT))))
    return longest, task_ids


def _rings(outside: Any) -> int:
    """Rings that no router has worked off."""
    return sum(outside.xlen(key) for key in outside.scan_iter("skillstream:inbox:*"))


def _recorded(database: Path) -> int:
    connection = sqlite3.connect(database, timeout=30)
    try:
        return int(connection.execute("SELECT count(*) FROM tasks WHERE state = 'completed'").fetchone()[0])
    finally:
        connection.close()


def _faults(outside: Any, settings: Settings, task_ids: list[str]) -> Counter[str]:
    """What is wrong with streams: each has a submission, one opening, and a final with its own number."""
    faults: Counter[str] = Counter()
    for first in range(0, len(task_ids), _READ_AT_ONCE):
        pipeline = outside.pipeline(transaction=False)
        for task_id in task_ids[first : first + _READ_AT_ONCE]:
            pipeline.xrange(settings.keys.events(task_id))
        for number, entries in enumerate(pipeline.execute(), first):
            if [entry_id for entry_id, _ in entries] != ["0-1", "1-1", "1-2"]:
                faults["entries"] += 1
            elif entries[-1][1].get("text") != str(number) or entries[-1][1].get("state") != "completed":
                faults["final"] += 1
    faults["ids"] = len(task_ids) - len(set(task_ids))
    return +faults


def _peak_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // _MIB for line in lines if line.startswith("VmHWM:"))


def main(tasks: int) -> int:
    """Runs a flood and prints its figures; 1 where anything is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(flood(tasks, Path(folder), patience_s=1800))
    print(outcome.line())
    return 1 if outcome.faults or outcome.queued or outcome.rings else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
