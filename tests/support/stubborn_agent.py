"""An agent for worker processes whose skills never end by themselves, whatever they are told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator

from skillstream_worker import Agent, SyncTaskContext, TaskContext

agent = Agent("stubborn", "Does not stop")


@agent.skill("swallow")
async def swallow(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Catches each cancellation and goes on."""
    yield "kept"
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@agent.skill("thread")
def thread(message: str, context: SyncTaskContext) -> Iterator[str]:
    """Blocks its thread."""
    yield "kept"
    threading.Event().wait()


@agent.skill("to_thread")
async def to_thread(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Lets go itself, but its thread does not, which the event loop's own executor would wait for."""
    yield "kept"
    await asyncio.to_thread(threading.Event().wait)
