"""An agent whose first attempt holds the event loop of its process until the file exists that its message names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from skillstream_worker import Agent, TaskContext

agent = Agent("blocking")


@agent.skill("hold_first", max_attempts=5)
async def hold_first(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    if context.attempt > 1:
        yield f"attempt {context.attempt}"
        return
    yield "about to hold"
    await asyncio.sleep(0.3)
    while not Path(message).exists():  # noqa: ASYNC240 — the fault under test
        time.sleep(0.05)  # noqa: ASYNC251
    yield "too late"
