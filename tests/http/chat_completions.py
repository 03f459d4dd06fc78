"""What is asked of a gateway as a chat completion, and what a client hears of it."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk

from .openai_clients import MODEL

HAND = "echo/say"
HELLO: list[Any] = [{"role": "user", "content": "hi"}]


async def chunks_of(client: AsyncOpenAI, messages: list[Any], model: str = MODEL, **more: Any) -> list[ChatCompletionChunk]:
    stream: Any = await client.chat.completions.create(model=model, messages=messages, stream=True, **more)
    return [chunk async for chunk in stream]


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
