"""Ending work that goes on beside the one who ends it."""

from __future__ import annotations

import asyncio
from typing import Any


async def break_off(*work: asyncio.Future[Any]) -> None:
    """Cancels tasks and waits until none of them goes on; what they raise meanwhile is passed over."""
    for each in work:
        each.cancel()
    await asyncio.gather(*work, return_exceptions=True)
