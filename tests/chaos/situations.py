"""Situations in which a missing check shows: each ends with what the checker finds, which is nothing in a sound product.

`python -m tests.chaos.situations NAME` prints the violations, and exits with 1 where there is one.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import SystemRandom

import redis.asyncio

from skillstream_router.broker import RouterBroker
from skillstream_router.projection import Notice, project
from skillstream_router.store import Store, Turns
from tests.acceptance.checker import check_jobs, check_rings
from tests.acceptance.report import Report
from tests.conformance.exploring import explore
from tests.conformance.world import World
from tests.router.ledger_file import LedgerFile

from .battlefield import LEASE_S
from .stage import Stage
from .storm_agent import agent


async def stalled_worker_renews(stage: Stage) -> Report:
    """A worker stalls, another takes over and dies; the first, awake again, must not keep the lease alive."""
    first = await stage.worker()
    order = await stage.submit("hang", "hung", attempts=2)
    await stage.until(lambda: stage.is_open(order, 1))
    first.send(signal.SIGSTOP)
    second = await stage.worker()
    await stage.until(lambda: stage.is_open(order, 2))
    first.send(signal.SIGCONT)
    await asyncio.sleep(LEASE_S * 0.8)  # two renewals of the first
    second.send(signal.SIGKILL)
    await stage.until(lambda: stage.is_final(order), LEASE_S + 2)
    return await stage.report()


async def stalled_worker_releases(stage: Stage) -> Report:
    """A worker stalls before it hands its job back; another holds it by then, and must not lose it."""
    first, second = await stage.worker_by_hand("first"), await stage.worker_by_hand("second")
    order = await stage.submit("nap", "slept", pause_s=0)
    stale = await stage.open_by_hand(first, order)
    await stage.until(lambda: not stage.is_leased(order))
    await stage.open_by_hand(second, order)
    await first.release(stale)
    await stage.worker()
    await stage.until(lambda: stage.is_final(order))
    return await stage.report()


async def worker_dies_behind_its_final(stage: Stage) -> Report:
    """A final is on the stream, its job still on the queue: whoever claims it next only settles it."""
    worker = await stage.worker_by_hand("dead")
    order = await stage.submit("nap", "slept", pause_s=0)
    await stage.open_by_hand(worker, order)
    final = {"type": "final", "state": "completed", "text": "slept", "metadata": "{}", "chunks": 0, "at": int(time.time() * 1000)}
    stage.outside.xadd(stage.settings.keys.events(order.task_id), final, id="1-2")
    stage.outside.xadd(stage.settings.keys.inbox_of(order.task_id), {"task": order.task_id, "kind": "final"})
    await stage.worker()
    await stage.until(lambda: stage.jobs() == 0)
    return await stage.report()


async def no_router_runs(stage: Stage) -> Report:
    """Tasks end while no router runs: each final has left its ring."""
    await stage.worker()
    orders = [await stage.submit("nap", "slept", pause_s=0) for _ in range(5)]
    await stage.until(lambda: all(stage.is_final(order) for order in orders))
    report = Report()
    check_rings(stage.server.url, [order.task_id for order in orders], report)
    return report


async def broker_refuses_a_final(stage: Stage) -> Report:
    """A final finds no room for longer than its worker's patience: the job stays for another attempt."""
    await stage.worker()
    order = await stage.submit("nap", "slept", pause_s=0.5)
    await stage.until(lambda: stage.is_open(order, 1))
    stage.outside.config_set("maxmemory", 1)
    await stage.until(lambda: not stage.is_leased(order))
    early = Report()
    check_jobs(stage.outside, agent.name, [order.task_id], early)
    stage.outside.config_set("maxmemory", 0)
    await stage.until(lambda: stage.is_final(order))
    report = await stage.report()
    report.violations[:0] = early.violations
    return report


async def broker_refuses_inside_a_flight(stage: Stage) -> Report:
    """A broker that is out of memory for a moment refuses some of the entries that were sent together."""
    await stage.worker()
    toggle: redis.asyncio.Redis = redis.asyncio.Redis.from_url(stage.server.url)
    orders = [await stage.submit("wordy", "".join(f"{n:06d}" * 500 for n in range(400)), pieces=400) for _ in range(6)]
    try:
        give_up_s = time.monotonic() + 6
        while not all(stage.is_final(order) for order in orders) and time.monotonic() < give_up_s:
            for _ in range(50):
                await toggle.config_set("maxmemory", 1)
                await toggle.config_set("maxmemory", 0)
    finally:
        await toggle.config_set("maxmemory", 0)
        await toggle.aclose()
    await stage.until(lambda: all(stage.is_final(order) for order in orders), 20)
    return await stage.report()


async def a_task_streams(stage: Stage) -> Report:
    """Nothing goes wrong at all."""
    await stage.worker()
    order = await stage.submit("count", "".join(f"{n} " for n in range(20)), pieces=20, pause_s=0.03)
    await stage.until(lambda: stage.is_final(order))
    return await stage.report()


async def router_stalls_before_its_transaction(stage: Stage) -> Report:
    """A router has read a task that runs; when it writes that down, another has written its end."""
    await stage.worker()
    order = await stage.submit("count", "0 1 2 3 4 ", pieces=5, pause_s=0.2)
    await stage.until(lambda: stage.is_open(order, 1))
    broker, store = await RouterBroker(stage.settings, "slow").open(), await Store(stage.settings).open()
    try:

        async def read() -> Turns:
            (ends,) = await broker.fetch([order.task_id])
            assert ends.first is not None
            assert ends.top is not None
            seen = project(Notice(order.task_id), ends.first, ends.top)
            return Turns(seen.record, seen.message, seen.reply)

        stale = await read()
        await stage.until(lambda: stage.is_final(order))
        await store.apply([await read()])
        await store.apply([stale])
        return stage.check_rows()
    finally:
        await broker.close()
        await store.close()


async def ring_is_delivered_twice(stage: Stage) -> Report:
    """A router dies behind its transaction and before it acknowledges: the next one applies the same ring."""
    await stage.worker()
    await stage.router()
    order = await stage.submit("nap", "slept", pause_s=0)
    await stage.until(lambda: stage.is_final(order) and stage.rings() == 0)
    stage.outside.xadd(stage.settings.keys.inbox_of(order.task_id), {"task": order.task_id, "kind": "final"})
    return await stage.report()


async def router_dies_before_its_commit(stage: Stage) -> Report:
    """A router has read rings and cannot write yet; it dies, and the next one finds them."""
    await stage.worker()
    router = await stage.router()
    router.send(signal.SIGSTOP)  # so that it reads all rings of a task at once
    orders = [await stage.submit("nap", "slept", pause_s=0) for _ in range(5)]
    await stage.until(lambda: all(stage.is_final(order) for order in orders) and stage.jobs() == 0)
    with stage.locked_database():
        router.send(signal.SIGCONT)
        await stage.until(lambda: stage.undelivered() == 0)
        await asyncio.sleep(0.5)
        router.send(signal.SIGKILL)
        router.wait()
    await stage.router()
    return await stage.report()


async def any_interleaving(stage: Stage) -> Report:
    """Workers, canceller, reaper and router take their steps in any order; the invariants are those of tests/conformance."""
    report = Report()
    chosen_seed = SystemRandom().randrange(2**32)

    def play_all() -> None:
        with World(stage.outside, stage.settings, LedgerFile(stage.database)) as world:
            explore(world, chosen_seed, 400, is_reported=False)

    try:
        await asyncio.to_thread(play_all)
    except Exception as error:
        report.violations.append(f"{type(error).__name__}: {error} (seed {chosen_seed})".replace("\n", " "))
    return report


SITUATIONS: dict[str, Callable[[Stage], Awaitable[Report]]] = {
    situation.__name__: situation
    for situation in (
        stalled_worker_renews, stalled_worker_releases, worker_dies_behind_its_final, no_router_runs,
        broker_refuses_a_final,
        broker_refuses_inside_a_flight, a_task_streams, router_stalls_before_its_transaction, ring_is_delivered_twice,
        router_dies_before_its_commit, any_interleaving,
    )
}  # fmt: skip


async def play(name: str) -> list[str]:
    """Plays a situation; returns the violations that the checker found."""
    with tempfile.TemporaryDirectory(prefix="skillstream-situation-") as folder:
        async with Stage(Path(folder)) as stage:
            return (await SITUATIONS[name](stage)).violations


if __name__ == "__main__":
    found = asyncio.run(play(sys.argv[1]))
    print("\n".join(found))
    raise SystemExit(1 if found else 0)
