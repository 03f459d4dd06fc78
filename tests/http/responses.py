"""What is asked of a gateway as a response, and what a client hears of it."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI
from openai.types.responses import Response

from tests.support.verbs import script

from .conftest import PATIENCE_S
from .openai_clients import MODEL

ATTEMPT = 2**32
BEGINNING = ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
END = ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]
DELTA = "response.output_text.delta"


async def ask(client: AsyncOpenAI, *verbs: list[Any], **more: Any) -> Response:
    told = await client.responses.create(model=MODEL, input=script(*verbs), **more)
    assert isinstance(told, Response)
    return told


async def events_of(client: AsyncOpenAI, response_id: str, after: int | None = None) -> list[Any]:
    more: Any = {} if after is None else {"starting_after": after}
    async with asyncio.timeout(PATIENCE_S):
        stream: Any = await client.responses.retrieve(response_id, stream=True, **more)
        return [event async for event in stream]


def text_of(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == DELTA)


def numbers(events: list[Any]) -> list[int]:
    return [event.sequence_number for event in events]
