"""Handlers written for the Agent Chat Protocol as skills: what they send becomes the task's output."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from skillstream.breaking_off import break_off
from skillstream_schemas.errors import MissingExtra

from .context import TaskContext
from .response import Response
from .skill import Piece, StreamingFunction

try:
    from uagents_core.contrib.protocols.chat import (
        ChatMessage,
        MetadataContent,
        ResourceContent,
        TextContent,
    )
except ModuleNotFoundError:
    raise MissingExtra("handlers of chat messages need uagents-core", extra="uagents") from None

_WAITING = 100


class Context:
    """What a handler is given in place of uAgents' context: `send`, `session`, `logger`, and the skill's own `task`."""

    def __init__(self, task: TaskContext, said: asyncio.Queue[Piece]) -> None:
        self.task = task
        self.session = task.context_id or task.task_id
        self.logger: logging.LoggerAdapter[logging.Logger] = task.log
        self._said = said

    async def send(self, destination: str, message: Any) -> None:
        """Says a chat message to whoever reads the task; there is nobody else, so `destination` is the sender's.

        Text is output, metadata is progress, a resource is structured output. Marks of streams and sessions, and
        acknowledgements, are the bridge's own affair: it makes them for each reader.
        """
        for content in message.content if isinstance(message, ChatMessage) else ():
            if isinstance(content, TextContent):
                await self._said.put(content.text)
            elif isinstance(content, MetadataContent):
                await self._said.put(Response(content.metadata.get("status", ""), "working", content.metadata))
            elif isinstance(content, ResourceContent):
                found = content.resource if isinstance(content.resource, list) else [content.resource]
                await self._said.put({"resource": [{"uri": each.uri, **each.metadata} for each in found]})


Handler = Callable[[Context, str, Any], Awaitable[None]]
"""`async (ctx, sender, ChatMessage)`, as uAgents has it."""


def chat_handler(handler: Handler) -> StreamingFunction:
    """A skill that runs a handler; the task ends when the handler returns, and fails with what it raises."""

    async def skill(message: str, context: TaskContext) -> AsyncGenerator[Piece, None]:
        said: asyncio.Queue[Piece] = asyncio.Queue(_WAITING)
        asked = ChatMessage([TextContent(message)])
        running = asyncio.ensure_future(handler(Context(context, said), context.sender_id or "", asked))
        try:
            while not (running.done() and said.empty()):
                piece = asyncio.ensure_future(said.get())
                await asyncio.wait((running, piece), return_when=asyncio.FIRST_COMPLETED)
                if piece.done():
                    yield piece.result()
                else:
                    piece.cancel()
            await running
        finally:
            await break_off(running)

    return skill
