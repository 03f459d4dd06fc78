"""The agent whose workers are measured: `skillstream worker benchmarks.agents:agent`.

Where BENCH_WAIT is set, a worker that imports this file waits before its first claim, as the peers do in their startup
hooks: connected and announced, it says that it is ready, and waits until all are let go.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator

from skillstream_worker import Agent, TaskContext
from skillstream_worker.claimer import Claimer

from .programs.recording import record, wait_for_the_others

REPLY = "x" * 1024

agent = Agent(name="bench", description="Skills of the benchmarks")


@agent.skill(name="noop")
async def noop(message: str, context: TaskContext) -> None:
    """Says when it was sent and started, and ends."""
    record(float(message))


@agent.skill(name="answer", price_usd="0.05")
async def answer(message: str, context: TaskContext) -> str:
    """A priced answer of 1 KB."""
    return REPLY


@agent.skill(name="first")
async def first(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """One chunk at once."""
    record(float(message))
    yield "first "


@agent.skill(name="wait")
async def wait(message: str, context: TaskContext) -> None:
    """Runs until it is stopped."""
    await asyncio.Event().wait()


def _hold_the_claimers() -> None:
    run = Claimer.run

    async def held(self: Claimer) -> None:
        wait_for_the_others()
        await run(self)

    Claimer.run = held  # type: ignore[method-assign]


if "BENCH_WAIT" in os.environ:
    _hold_the_claimers()
