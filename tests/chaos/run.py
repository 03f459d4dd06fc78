"""A chaos run from its seed to its counts and violations."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import redis

from skillstream import Client
from skillstream_schemas.settings import Settings
from tests.acceptance.checker import check
from tests.acceptance.report import Report

from .battlefield import ENVIRONMENT, LEASE_S, Battlefield
from .crowd import Crowd
from .faults import faults
from .orders import errands
from .watcher import Watcher

HEALING_S = 75.0
"""The end of a run is bounded: a router looks for submissions that stopped half way after 30 s, all else is quicker."""
_LOOK_S = 0.1
_TRACEBACK = "Traceback (most recent call last)"
_UNEXPECTED = (_TRACEBACK, " CRITICAL ", "never retrieved")
_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:")
_SKILL_RAISED = re.compile(r" skill \S+ at task \S+ raised ")


@dataclass
class Outcome:
    """What happened and what was found; `log` is what each process said."""

    seed: int
    counts: Counter[str]
    report: Report
    healing_s: float = 0.0
    log: dict[str, list[str]] = field(default_factory=dict)

    @property
    def violations(self) -> list[str]:
        """All violations."""
        return self.report.violations

    def lines(self) -> list[str]:
        """The outcome for people."""
        return [
            "  ".join(f"{name}: {count}" for name, count in sorted(self.counts.items())),
            f"retries: {self.report.retries}  chunks of the last attempts: {self.report.chunks}  "
            f"charged: {self.report.charged_micros} micro-USD  readers checked: {self.report.followed}",
            "finals: " + "  ".join(f"{end}: {count}" for end, count in self.report.ends.most_common()),
            f"healed in {self.healing_s:.1f} s",
            f"violations: {len(self.violations)}  seed: {self.seed}",
            *("  " + sentence for sentence in self.violations[:40]),
        ]


async def run(seed: int, seconds: float, folder: Path) -> Outcome:
    """Runs for `seconds`, heals everything, waits for the end, and checks; `folder` keeps data of broker and router."""
    wanted = errands(seed, seconds)
    async with Battlefield(folder) as field, AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client(settings=Settings.from_env(ENVIRONMENT, redis_url=wire.url)))
            for wire in field.client_wires
        ]
        crowd = Crowd(clients, wanted)
        working = asyncio.create_task(crowd.run())
        watcher = Watcher(field.broker.port, crowd.acknowledged)
        watching = asyncio.create_task(watcher.run())
        await _strike(field, seed, seconds)
        field.heal()
        healed_s = time.monotonic()
        left = await _settled(field, working)
        healing_s = time.monotonic() - healed_s
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        report = await asyncio.to_thread(
            check, field.broker.url, str(field.database), [], orders=[e.order for e in wanted], lease_ms=int(LEASE_S * 1000)
        )
        await field.stop()
    report.violations[:0] = [*left, *crowd.violations, *dict.fromkeys(watcher.report.violations)]
    log = {slot.name: slot.log for slot in field.slots}
    counts = crowd.counts + field.counts
    counts["cuts"] = sum(wire.drops for wire in field.wires)
    counts["deaths by a task"] = sum(slot.deaths for slot in field.slots)
    counts["looks at jobs"] = watcher.looks
    for slot in field.slots:
        report.violations += slot.violations
        report.violations += [f"{slot.name}: {line}" for line in _unexpected(slot.log)]
    return Outcome(seed, counts, report, healing_s, log)


def _unexpected(lines: Iterable[str]) -> Iterator[str]:
    """What a fault brings about is expected and said in one line; a traceback, but a raising skill's, nobody thought of."""
    is_of_a_skill = False
    for line in lines:
        if _RECORD.search(line):
            is_of_a_skill = _SKILL_RAISED.search(line) is not None
        if any(sign in line for sign in _UNEXPECTED) and not (is_of_a_skill and _TRACEBACK in line):
            yield line


async def _strike(field: Battlefield, seed: int, seconds: float) -> None:
    start_s = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for fault in faults(seed, seconds):
            await asyncio.sleep(max(0.0, start_s + fault.at_s - asyncio.get_running_loop().time()))
            group.create_task(field.strike(fault))
        await asyncio.sleep(max(0.0, start_s + seconds - asyncio.get_running_loop().time()))


async def _settled(field: Battlefield, working: asyncio.Task[None]) -> list[str]:
    """Waits until all errands are done and the broker is empty, within the bound; says what is left otherwise."""
    left: list[str] = []
    give_up_s = time.monotonic() + HEALING_S
    _, late = await asyncio.wait([working], timeout=HEALING_S)
    if late:
        left.append(f"clients are not done {HEALING_S:g} s after everything was healed")
        working.cancel()
    await asyncio.gather(working, return_exceptions=bool(late))
    with field.broker.client() as broker:
        while waiting := _waiting(broker):
            if time.monotonic() > give_up_s:
                return [*left, f"{waiting} are left {HEALING_S:g} s after everything was healed"]
            await asyncio.sleep(_LOOK_S)
    return left


def _waiting(broker: redis.Redis) -> str:
    # jobs first: once there are none, every final has rung
    jobs = sum(cast(int, broker.zcard(key)) for key in broker.scan_iter("arq:queue:*"))
    rings = sum(cast(int, broker.xlen(key)) for key in broker.scan_iter("skillstream:inbox:*"))
    return f"{rings} rings and {jobs} jobs" if rings or jobs else ""
