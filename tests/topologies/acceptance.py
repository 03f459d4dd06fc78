"""The same main job on each topology: tasks of every kind, followed and paid, while something happens to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from skillstream import Client, Task
from skillstream_router import Router
from skillstream_schemas.settings import Settings
from skillstream_worker import Agent, TaskContext, Worker
from tests.acceptance.checker import check_at
from tests.acceptance.report import Report
from tests.client.bounds import until

STREAMED, PLAIN = 12, 20
PIECES = 100
_BOUND_S = 40.0
agent = Agent("steady")


@agent.skill("count", price_usd="0.01", max_attempts=10)
async def count(message: str, context: TaskContext):  # type: ignore[no-untyped-def]
    """A number every 20 ms."""
    for number in range(len(context.partial_text.split()), int(message)):
        yield f"{number} "
        await asyncio.sleep(0.02)


@agent.skill("go_on", price_usd="0.01", max_attempts=10, on_retry="resume")
async def go_on(message: str, context: TaskContext):  # type: ignore[no-untyped-def]
    """The same, and goes on where an attempt before it ended."""
    for number in range(len(context.partial_text.split()), int(message)):
        yield f"{number} "
        await asyncio.sleep(0.02)


@agent.skill("answer", price_usd="0.02", max_attempts=10)
async def answer(message: str, context: TaskContext) -> str:
    """Nothing streamed."""
    return f"{message}: {len(context.conversation_history)}"


@agent.skill("ask", max_attempts=10)
async def ask(message: str, context: TaskContext):  # type: ignore[no-untyped-def]
    """Leaves it to a child task."""
    async for event in context.delegate("steady", "count", message):
        if event.type == "chunk":
            yield event.text


async def accept(
    settings: Settings,
    database: Path,
    outside: Callable[[], Any],
    disturb: Callable[[list[Task]], Awaitable[None]],
    *,
    talk: bool,
) -> Report:
    """Runs the job and has the checker look at it; `disturb` is called once all streams flow.

    `outside` opens a client that sees all keys. `talk` adds a conversation: its list is a copy, which a failover may lose.
    """
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Worker([agent], settings, name=f"w{number}")) for number in range(2)]
        await stack.enter_async_context(Router(settings))
        client = await stack.enter_async_context(Client(settings=settings))
        streamed = [
            await client.submit("steady", ("count", "go_on")[number % 2], str(PIECES), payer="acme") for number in range(STREAMED)
        ]
        asked = await client.submit("steady", "ask", str(PIECES))
        doomed = await client.submit("steady", "count", "100000", payer="acme")
        late = await client.submit("steady", "count", "3", delay=2)
        followed = asyncio.gather(*(_text(task) for task in (*streamed, asked)))
        stack.callback(followed.cancel)
        await until(lambda: sum(len(worker.running) for worker in workers) >= STREAMED + 3)
        await disturb(streamed)
        plain = await asyncio.gather(
            *(client.submit("steady", "answer", str(number), payer=f"p{number % 3}") for number in range(PLAIN))
        )
        if talk:
            await _talk(client, settings, outside)
        assert (await doomed.cancel("enough", timeout=_BOUND_S)).state == "canceled"
        finals = [await task.result(_BOUND_S) for task in (*streamed, asked, late, *plain)]
        async with asyncio.timeout(_BOUND_S):
            texts = await followed
        with outside() as broker:
            await until(lambda: _is_settled(broker), bound_s=_BOUND_S)
    assert {final.state for final in finals} == {"completed"}
    said = "".join(f"{number} " for number in range(PIECES))
    assert set(texts) == {said}
    assert {final.text for final in finals[: STREAMED + 1]} == {said}
    with outside() as broker:
        children = [key.split(":")[-2] for key in broker.scan_iter("skillstream:task:*:events")]
        return check_at(broker, str(database), children)


async def _talk(client: Client, settings: Settings, outside: Callable[[], Any]) -> None:
    conversation = client.conversation("steady", payer="acme")
    messages = settings.keys.context_messages(conversation.context_id)
    with outside() as broker:
        for number in range(3):
            final = await (await conversation.submit("answer", "turn")).result(_BOUND_S)
            assert final.text == f"turn: {2 * number}"
            await until(partial(_has, broker, messages, 2 * number + 2), bound_s=_BOUND_S)


def _has(broker: Any, key: str, count: int) -> bool:
    return bool(broker.llen(key) == count)


async def _text(task: Task) -> str:
    """What a follower puts together, which forgets what an attempt that was given up has said."""
    text = ""
    async for event in task.events():
        match event.type:
            case "chunk":
                text += event.text or ""
            case "reset":
                text = text[: event.keep]
    return text


def _is_settled(broker: Any) -> bool:
    queued = broker.zcard("arq:queue:{steady}")
    return queued == 0 and all(broker.xlen(key) == 0 for key in broker.scan_iter("skillstream:inbox:*"))
