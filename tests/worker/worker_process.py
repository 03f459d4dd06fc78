"""`skillstream worker` as a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.processes import START_S

ROOT = Path(__file__).parents[2]
TARGET = "tests.support.cli_agent:agent"
NOBODY = "redis://127.0.0.1:1/0"


class WorkerProcess:
    """Responsible for one `skillstream worker` and what it prints."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.names: list[str] = []

    async def ready(self, count: int = 1) -> None:
        """Waits until `count` workers say that they are ready."""
        assert self.process.stdout is not None
        async with asyncio.timeout(START_S):
            while len(self.names) < count:
                line = (await self.process.stdout.readline()).decode()
                assert line, f"ended with {await self.process.wait()}: {await self.errors()}"
                if line.endswith(" is ready\n"):
                    self.names.append(line.split()[1])

    async def errors(self) -> str:
        """All of its standard error, once it has ended."""
        assert self.process.stderr is not None
        return (await self.process.stderr.read()).decode()

    async def ended(self) -> int:
        """Waits for its exit code."""
        return await asyncio.wait_for(self.process.wait(), START_S)


Spawn = Callable[..., Awaitable[WorkerProcess]]
