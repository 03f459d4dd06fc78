"""Every wait in a test has an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
BOUND_S = 10.0
"""A busy machine takes seconds for what takes milliseconds; a wait that runs out is a fault."""
TRIES = 3
"""A busy machine can only add to what a promised time is measured to be: one of so many within it shows that it is kept."""


async def soon(awaited: Awaitable[T]) -> T:
    """What is awaited, within the bound."""
    return await asyncio.wait_for(awaited, BOUND_S)


async def collected(source: AsyncIterable[T]) -> list[T]:
    """All that comes, within the bound."""
    async with asyncio.timeout(BOUND_S):
        return [item async for item in source]


async def until(condition: Callable[[], bool], *, bound_s: float = BOUND_S) -> None:
    """Comes back once a condition holds that only other tasks of this loop, or a server, can bring about."""
    async with asyncio.timeout(bound_s):
        while not condition():  # noqa: ASYNC110 - what it waits for may be in another process
            await asyncio.sleep(0.005)
