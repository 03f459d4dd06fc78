"""Waiting for a state that another process or task brings about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

BOUND_S = 10.0


async def eventually(condition: Callable[[], object], what: str, bound_s: float = BOUND_S) -> None:
    """Returns once `condition` is true; fails, naming `what`, if that takes longer than `bound_s` seconds."""
    try:
        async with asyncio.timeout(bound_s):
            while not condition():  # noqa: ASYNC110 - another process brings it about
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {bound_s:g} s: {what}") from None
