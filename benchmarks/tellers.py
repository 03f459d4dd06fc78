"""The agent whose tokens are followed over HTTP; a message is `COUNT DELAY_S`, its tokens are `t0 t1 t2 …`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from skillstream_worker import Agent, Chunking, TaskContext

agent = Agent(name="teller", description="Tells numbered tokens")


async def _tokens(message: str, begin: int = 0) -> AsyncGenerator[str, None]:
    count, delay_s = message.split()
    for number in range(begin, int(count)):
        await asyncio.sleep(float(delay_s))
        yield f"t{number} "


@agent.skill(name="tell")
async def tell(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """As it ships: merged within 20 ms."""
    async for token in _tokens(message):
        yield token


@agent.skill(name="tell-unmerged", chunking=Chunking.off())
async def tell_unmerged(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """An entry a token."""
    async for token in _tokens(message):
        yield token


@agent.skill(name="tell-on", on_retry="resume")
async def tell_on(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Goes on where an attempt that was lost stopped."""
    async for token in _tokens(message, begin=context.partial_text.count(" ")):
        yield token
