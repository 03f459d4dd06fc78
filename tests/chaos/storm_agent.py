"""The agent of the chaos run: skills that stream, nap, retry, raise, resume, ask, hang, block, and kill their worker.

A message is a JSON object with what the skill needs. What a skill says does not depend on when or how often it was
broken off, so that the checker knows it beforehand.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncGenerator
from typing import Any

from skillstream_worker import Agent, Response, Retry, TaskContext

agent = Agent("storm", "Says the same however often it is broken off")

_LONG_S = 600.0
_BLOCK_S = 3.0
"""Longer than the lease of the run."""


@agent.skill("count", price_usd="0.02", max_attempts=20)
async def count(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Streams numbers; a newer attempt starts again."""
    wanted = json.loads(message)
    for number in range(wanted["pieces"]):
        yield f"{number} "
        await asyncio.sleep(wanted["pause_s"])


@agent.skill("resume", price_usd="0.03", max_attempts=20, on_retry="resume")
async def resume(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Streams numbers; a newer attempt goes on behind what was said."""
    wanted = json.loads(message)
    text = "".join(f"{number} é" for number in range(wanted["pieces"]))
    for start in range(len(context.partial_text), len(text), 3):
        yield text[start : start + 3]
        await asyncio.sleep(wanted["pause_s"])


@agent.skill("wordy", max_attempts=20)
async def wordy(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Says much without a pause: many entries in one flight."""
    for number in range(json.loads(message)["pieces"]):
        yield f"{number:06d}" * 500


@agent.skill("nap", price_usd="0.05")
async def nap(message: str, context: TaskContext) -> str:
    """Says nothing until its end."""
    await asyncio.sleep(json.loads(message)["pause_s"])
    return "slept"


@agent.skill("again", max_attempts=20)
async def again(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Asks for further attempts."""
    wanted = json.loads(message)
    yield "heard"
    if context.attempt <= wanted["times"]:
        raise Retry(delay=wanted["pause_s"])


@agent.skill("flaky", max_attempts=20, retry_on=(ConnectionError,))
async def flaky(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Fails at its first attempt with an error that starts another."""
    yield "called"
    if context.attempt == 1:
        raise ConnectionError("the first call fails")


@agent.skill("once", price_usd="0.07", on_retry="fail")
async def once(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Has effects of its own, so it is never run twice."""
    yield "sent "
    await asyncio.sleep(json.loads(message)["pause_s"])
    yield "once"


@agent.skill("broken", price_usd="0.11")
async def broken(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Raises after a beginning."""
    yield "half"
    raise ValueError("the other half is missing")


@agent.skill("ask", price_usd="0.13")
async def ask(message: str, context: TaskContext) -> AsyncGenerator[Response, None]:
    """Needs an answer from its user."""
    yield Response(text="thinking", status="working", progress=0.5)
    yield Response(text="which one?", status="input-required")


@agent.skill("shapes")
async def shapes(message: str, context: TaskContext) -> AsyncGenerator[dict[str, Any], None]:
    """Streams snapshots of a structured result."""
    for number in range(json.loads(message)["pieces"]):
        yield {"shape": number}
        await context.status(f"shape {number}")


@agent.skill("overtime", timeout=0.5, max_attempts=20)
async def overtime(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Takes longer than it may."""
    yield "begun"
    await asyncio.sleep(_LONG_S)


@agent.skill("linger", max_attempts=1000)
async def linger(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Goes on until it is canceled."""
    yield "waiting"
    await asyncio.sleep(_LONG_S)


@agent.skill("hang", max_attempts=20)
async def hang(message: str, context: TaskContext) -> str:
    """Hangs silently in its first attempts."""
    if context.attempt <= json.loads(message)["attempts"]:
        await asyncio.sleep(_LONG_S)
    return "hung"


@agent.skill("block", max_attempts=20)
async def block(message: str, context: TaskContext) -> str:
    """Holds the event loop of its worker for longer than a lease, once."""
    if context.attempt == 1:
        time.sleep(_BLOCK_S)  # noqa: ASYNC251 - what careless skills do
    return "blocked"


@agent.skill("poison", max_attempts=2)
async def poison(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Kills its worker."""
    yield "drunk"
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
