"""An agent for worker processes; its skills meet the test at a unix socket, whose path is the message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from skillstream_worker import Agent, TaskContext

agent = Agent("porter", "Runs in processes of its own")
no_agent = {"name": "porter"}


@agent.skill("echo")
async def echo(message: str, context: TaskContext) -> str:
    """Returns its message."""
    return message


@agent.skill("hold")
async def hold(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Begins, says so at the socket, and goes on when the test closes it."""
    yield f"attempt {context.attempt}"
    reader, writer = await asyncio.open_unix_connection(message)
    try:
        writer.write(b"running\n")
        await reader.read()
    finally:
        writer.close()
    yield " ended"
