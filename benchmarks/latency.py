"""From the call of submit to the skill's first line on an idle worker, hop by hop, and to a follower's first chunk."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import partial

from skillstream import Client

from .contenders import ARQ, FLOOR, OURS, TASKIQ, Contender, a_run, announce
from .environments import Environments
from .hops import HOPS, STAMPS, stamps, submit_with_stamps
from .measuring import Figure, Lab, Report, Target, quantile
from .processes import apart
from .server import Server, running_server

P50, P99 = "p50", "p99"
FIRST_CHUNK = "skillstream, first chunk at a follower"
BY_HOP = "skillstream, by hop"
_TRACED = replace(OURS, variant="benchmarks.hops:agent")
INTERVAL_S = 0.1
_SETTLE_DOWN_S = 1.0
_CHUNK_S = 10.0


def measure(lab: Lab) -> Report:
    """Runs all contenders on one server, each alone; the hops are of runs of their own, whose stamps cost a little."""
    count, environments = lab.size(100, 20), lab.environments
    contenders = (OURS, FLOOR) if lab.is_quick else (OURS, TASKIQ, FLOOR, ARQ)
    with running_server() as server:
        measures = {contender.name: partial(_first_lines, contender, environments, server, count) for contender in contenders}
        measures[FIRST_CHUNK] = partial(_first_chunks, environments, server, count)
        measures[BY_HOP] = partial(_by_hop, environments, server, count)
        samples = lab.alternate(measures, required=[OURS.name])
    line, chunk, most = "submit → first line of the skill", "submit → first chunk at a follower", Target(1.5, is_ceiling=True)
    return Report(
        "latency",
        (
            *samples.figures(P50, "ms"),
            *samples.figures(P99, "ms"),
            *(Figure("skillstream by hop, p50", hop, "ms", samples.of(BY_HOP, hop)) for hop in HOPS if samples.of(BY_HOP, hop)),
        ),
        (
            *samples.ratio(f"{line}, p50", OURS.name, TASKIQ.name, figure=P50, target=most, better="lower"),
            *samples.ratio(f"{line}, p99", OURS.name, TASKIQ.name, figure=P99, target=most, better="lower"),
            *samples.ratio(f"{line}, p50", OURS.name, FLOOR.name, figure=P50, better="lower"),
            *samples.ratio(
                f"{chunk}, p50", FIRST_CHUNK, OURS.name, figure=P50, target=Target(2, is_ceiling=True), better="lower"
            ),
            *samples.ratio(
                f"{chunk}, p99", FIRST_CHUNK, OURS.name, figure=P99, target=Target(2, is_ceiling=True), better="lower"
            ),
        ),
        samples.notes,
    )


def _first_lines(contender: Contender, environments: Environments, server: Server, count: int) -> Mapping[str, float]:
    with a_run(contender, environments, server) as run:
        run.start_workers()
        run.go()
        time.sleep(_SETTLE_DOWN_S)
        run.submit_slowly(count, INTERVAL_S)
        run.until_started(count)
        ms = run.latencies_ms()
    return {P50: quantile(ms, 0.5), P99: quantile(ms, 0.99)}


def _first_chunks(environments: Environments, server: Server, count: int) -> Mapping[str, float]:
    with a_run(OURS, environments, server) as run:
        asyncio.run(announce(server.url))
        run.start_workers()
        run.go()
        time.sleep(_SETTLE_DOWN_S)
        ms = apart(first_chunks, loop="asyncio", url=server.url, count=count, interval_s=INTERVAL_S)
    return {P50: quantile(ms, 0.5), P99: quantile(ms, 0.99)}


def _by_hop(environments: Environments, server: Server, count: int) -> Mapping[str, float]:
    with a_run(_TRACED, environments, server) as run:
        asyncio.run(announce(server.url))
        run.start_workers()
        run.go()
        time.sleep(_SETTLE_DOWN_S)
        submitted = apart(submit_with_stamps, loop="asyncio", url=server.url, count=count, interval_s=INTERVAL_S)
        run.until_started(count)
        begun, hops = run.starts(), stamps(run.folder)
    stretches: dict[str, list[float]] = {hop: [] for hop in HOPS}
    for task_id, sent_s, answered_s in submitted:
        at = dict(zip(HOPS, (answered_s, *(hops[task_id].get(stamp) for stamp in STAMPS), begun[sent_s]), strict=True))
        if None in at.values():
            continue  # found on the queue itself before its token came: such a task has no such hop
        before_s = sent_s
        for hop, reached_s in at.items():
            stretches[hop].append(1000 * (reached_s - before_s))
            before_s = reached_s
    return {hop: statistics.median(values) for hop, values in stretches.items() if values}


async def first_chunks(url: str, count: int, interval_s: float) -> list[float]:
    """Submits tasks one by one and follows each; returns milliseconds from the call to its first chunk here."""
    found: list[float] = []
    async with Client(url) as client:
        for _ in range(count):
            await asyncio.sleep(interval_s * random.uniform(0.5, 1.5))
            sent_s = time.time()
            task = await client.submit("bench", "first", repr(sent_s))
            async with asyncio.timeout(_CHUNK_S), aclosing(task.text()) as pieces:
                await anext(pieces)
            found.append(1000 * (time.time() - sent_s))
    return found
