"""Ending work that goes on beside the one who ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def break_off(*work: asyncio.Future[Any]) -> None:
    """Cancels tasks and waits until none of them goes on; what they raise meanwhile is passed over."""
    for each in work:
        each.cancel()
    await asyncio.gather(*work, return_exceptions=True)


async def finish_unless(told: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Waits until work is done; breaks it off, and gives False, where `told` is set first. Raises what the work raises."""
    working = asyncio.ensure_future(work)
    stop = asyncio.ensure_future(told.wait())
    try:
        await asyncio.wait((working, stop), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        await break_off(working, stop)
