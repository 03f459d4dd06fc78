"""A process that ends with its parent, though its event loop may stand still; in a process of its own."""

from __future__ import annotations

import asyncio
import sys
import threading

from skillstream.cli.process import when_parent_ends


async def main(*, stands_still: bool) -> None:
    """Waits for its parent's end."""
    ended = asyncio.Event()
    when_parent_ends(ended.set, force_after_s=0.2)
    print("ready", flush=True)
    if stands_still:
        threading.Event().wait()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(stands_still=sys.argv[1] == "still"))
