"""Answers of the Agent Chat Protocol, streamed and in several messages: `stream_response` is written as for uAgents.

Only its import of `Context` differs. Offered with `skillstream connect agentverse --agent writer/stream`.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator

from uagents_core.contrib.protocols.chat import ChatMessage, EndStreamContent, StartStreamContent, TextContent

from skillstream_worker import Agent, Chunking, TaskContext
from skillstream_worker.chat_handler import Context, chat_handler

agent = Agent("writer", "Says a text again, in pieces")


async def stream_response(ctx: Context, sender: str, chunks: list[str]) -> None:
    """Opens a stream, sends the pieces, closes it."""
    stream_id = uuid.uuid4()
    await ctx.send(sender, ChatMessage(content=[StartStreamContent(stream_id=stream_id)]))
    for chunk in chunks:
        await ctx.send(sender, ChatMessage(content=[TextContent(text=chunk)]))
    await ctx.send(sender, ChatMessage(content=[EndStreamContent(stream_id=stream_id)]))


async def on_message(ctx: Context, sender: str, message: ChatMessage) -> None:
    """A handler of chat messages: streams the message's own words."""
    await stream_response(ctx, sender, [f"{word} " for word in message.text().split()])


agent.skill("stream", "Streams, as a handler of chat messages does")(chat_handler(on_message))


@agent.skill("stream-by-yield", "The same as a skill of ours", chunking=Chunking(boundary="sentence"))
async def stream_by_yield(message: str, context: TaskContext) -> AsyncGenerator[str, None]:
    """Yields; the bridge opens and closes the stream."""
    for word in message.split():
        yield f"{word} "


@agent.skill("whole", "Not streamed: a long answer goes in several messages, cut between paragraphs")
async def whole(message: str, context: TaskContext) -> str:
    """Returns all of it."""
    return message
