"""The measured agent, with a stamp at each hop of a task: `skillstream worker benchmarks.hops:agent`.

Importing it wraps methods of this process's seams to Redis; nothing of the product is changed on disk. A stamp is one
line in a file of the process.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skillstream import Client
from skillstream.batching import ScriptBatch
from skillstream_schemas.ids import new_task_id
from skillstream_schemas.keys import job_id
from skillstream_worker.broker import Claimed, Lease, WakeLine, WorkerBroker

from .agents import agent
from .programs.recording import FOLDER

__all__ = ["HOPS", "STAMPS", "agent", "stamps", "submit_with_stamps"]

STAMPS = ("woken", "claimed", "opened")
"""What a worker notes of a task, in order."""
HOPS = (
    "1 submit answered (P1)",
    "2 enqueue sent, token at the worker (P1)",
    "3 claim answered (P2)",
    "4 open answered (P4)",
    "5 first line",
)
"""The stretches of a task's way, each with the rule that forces it."""

_file = (FOLDER / f"hops.{os.getpid()}").open("a") if "BENCH_FOLDER" in os.environ else None


def stamp(task_id: str, hop: str) -> None:
    """Notes that a task has come to a hop."""
    if _file is not None:
        _file.write(f"{task_id} {hop} {time.time()!r}\n")
        _file.flush()


def stamps(folder: Path) -> dict[str, dict[str, float]]:
    """When each task came to each hop (Unix seconds), as the workers noted it."""
    found: dict[str, dict[str, float]] = {}
    for file in folder.glob("hops.*"):
        for line in file.read_text().splitlines():
            task_id, hop, at = line.split(" ")
            found.setdefault(task_id, {})[hop] = float(at)
    return found


async def submit_with_stamps(url: str, count: int, interval_s: float) -> list[tuple[str, float, float]]:
    """Submits no-op tasks one by one; returns id, when it was called and when its first step was answered."""
    found: list[tuple[str, float, float]] = []
    answered: dict[str, float] = {}
    put = ScriptBatch.put

    def stamped(self: ScriptBatch, item: Any) -> None:
        # a task's id comes first in the script of its stream, and its job's, put when that is answered, in the queue's
        answered[str(item.call.arguments[0])] = time.time()
        put(self, item)

    ScriptBatch.put = stamped  # type: ignore[method-assign]
    async with Client(url) as client:
        for _ in range(count):
            await asyncio.sleep(interval_s * random.uniform(0.5, 1.5))
            task_id, sent_s = new_task_id(), time.time()
            await client.submit("bench", "noop", repr(sent_s), task_id=task_id)
            found.append((task_id, sent_s, answered[job_id("bench", task_id)]))
    return found


def _stamp_worker() -> None:
    wait, claim, open_attempt = WakeLine.wait, WorkerBroker.claim, WorkerBroker.open_attempt

    async def stamped_wait(self: WakeLine, count: int, timeout_s: float) -> list[str]:
        task_ids = await wait(self, count, timeout_s)
        for task_id in task_ids:
            stamp(task_id, "woken")
        return task_ids

    async def stamped_claim(self: WorkerBroker, agent: str, candidates: Sequence[str], wanted: int) -> Claimed:
        claimed = await claim(self, agent, candidates, wanted)
        for job in claimed.won:
            stamp(job.task_id, "claimed")
        return claimed

    async def stamped_open(self: WorkerBroker, lease: Lease, *args: Any, **kwargs: Any) -> Any:
        opening = await open_attempt(self, lease, *args, **kwargs)
        stamp(lease.task_id, "opened")
        return opening

    WakeLine.wait = stamped_wait  # type: ignore[method-assign]
    WorkerBroker.claim = stamped_claim  # type: ignore[method-assign]
    WorkerBroker.open_attempt = stamped_open  # type: ignore[method-assign]


if "BENCH_WAIT" in os.environ:
    _stamp_worker()
