"""Processes that a script starts, waits for until they are ready, and ends."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from skillstream import SkillstreamError

START_S = 20.0
STOP_S = 10.0
_KEPT_LINES = 15


class NotReadyError(SkillstreamError):
    """A process ended before it was ready, or took too long."""

    code = "not_ready"


@asynccontextmanager
async def process(name: str, command: Sequence[str], ready: str, **variables: str) -> AsyncIterator[None]:
    """Runs a process with these environment variables besides ours, from the line that holds `ready` on.

    It is ended by its id on the way out: asked first, killed after `STOP_S`. Raises NotReadyError with its last lines.
    """
    started = time.monotonic()
    # a session of its own: Ctrl-C reaches the script alone, which then ends its processes in order
    child = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | variables,
        start_new_session=True,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert child.stdout is not None
    said: deque[str] = deque(maxlen=_KEPT_LINES)
    reading: asyncio.Task[bool] | None = None
    try:
        try:
            async with asyncio.timeout(START_S):
                if not await _read(child.stdout, said, ready):
                    raise NotReadyError(f"the {name} ended with {await child.wait()}:\n" + "\n".join(said))
        except TimeoutError:
            raise NotReadyError(f"the {name} was not ready within {START_S:g} s:\n" + "\n".join(said)) from None
        print(f"{name:7} process {child.pid}, ready after {time.monotonic() - started:.2f} s", flush=True)
        # read on: a full pipe would hold the process up
        reading = asyncio.create_task(_read(child.stdout, said))
        yield
    finally:
        await _end(child)
        if reading is not None:
            await reading


async def _read(output: asyncio.StreamReader, said: deque[str], ready: str | None = None) -> bool:
    """Reads lines up to the one that holds `ready`, True, or to the end, False."""
    async for line in output:
        said.append(line.decode(errors="replace").rstrip())
        if ready is not None and ready in said[-1]:
            return True
    return False


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
