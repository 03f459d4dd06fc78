"""A real uAgents agent as a process: says what it is told on standard input, and prints what comes to it, a JSON line each.

`python -m tests.connect.peer_process PORT SEED '{"<address>": "<url>"}'`. A message whose text is a JSON object with `reply` is
answered with those contents, a chat message each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import UUID

import uagents.agent
from uagents import Agent, Context, Protocol
from uagents.resolver import RulesBasedResolver
from uagents_core.contrib.protocols.chat import ChatAcknowledgement, ChatMessage, TextContent, chat_protocol_spec


async def _nothing(*arguments: Any, **options: Any) -> None:
    """Stands for calls to a network that is not there."""


uagents.agent.get_almanac_contract = lambda *arguments, **options: None
Agent._update_agent_status = _nothing


def say(**record: Any) -> None:
    """Prints a line for the test."""
    print(json.dumps(record), flush=True)


def main(port: int, seed: str, known: dict[str, str]) -> None:
    """Runs the agent until its standard input closes."""
    agent = Agent(
        name="peer", seed=seed, port=port, resolve=RulesBasedResolver(known), report_events=False, mark_inactive_on_shutdown=False
    )
    chat = Protocol(spec=chat_protocol_spec)
    kept: list[asyncio.Task[None]] = []

    @chat.on_message(ChatMessage)
    async def on_message(ctx: Context, sender: str, message: ChatMessage) -> None:
        content = json.loads(message.json())["content"]
        say(kind="message", sender=sender, session=str(ctx.session), msg_id=str(message.msg_id), content=content)
        await ctx.send(sender, ChatAcknowledgement(message.msg_id))
        text = "".join(each.text for each in message.content if isinstance(each, TextContent))
        for contents in json.loads(text)["reply"] if text.startswith('{"reply"') else []:
            await ctx.send(sender, ChatMessage.parse_obj({"content": contents}))

    @chat.on_message(ChatAcknowledgement)
    async def on_acknowledgement(ctx: Context, sender: str, message: ChatAcknowledgement) -> None:
        say(kind="ack", sender=sender, session=str(ctx.session), msg_id=str(message.acknowledged_msg_id))

    @agent.on_event("startup")
    async def on_startup(ctx: Context) -> None:
        kept.append(asyncio.get_running_loop().create_task(take_orders(ctx)))
        say(kind="ready", address=agent.address)

    async def take_orders(ctx: Context) -> None:
        reader = asyncio.StreamReader(limit=2**24)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            order = json.loads(line)
            ctx._session = UUID(order["session"])
            status = await ctx.send(order["to"], ChatMessage.parse_obj(order["message"]))
            say(kind="sent", status=str(status.status), detail=str(status.detail))
        asyncio.get_running_loop().stop()

    agent.include(chat)
    agent.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
