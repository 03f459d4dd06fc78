"""What every long-running process of ours does alike: the fastest event loop there is, a calm garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

try:
    import uvloop
except ImportError:

    def run_loop(work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on a new event loop."""
        return asyncio.run(work)

else:

    def run_loop(work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on a new event loop."""
        return uvloop.run(work)


def calm_garbage_collector() -> None:
    """Keeps the collector from looking through all modules each few tasks: a fifth of the time of small tasks.

    Called once all is loaded and before the work begins.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
