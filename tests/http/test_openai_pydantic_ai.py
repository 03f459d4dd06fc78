"""A skill as the model of a pydantic-ai agent, over both of OpenAI's protocols."""

from __future__ import annotations

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from skillstream_router.app import Router
from skillstream_worker import Worker
from tests.support.verbs import Gates, script

from .openai_clients import MODEL, openai_client


@pytest.mark.parametrize("kind", [OpenAIChatModel, OpenAIResponsesModel])
async def test_a_skill_is_a_model(
    gateway: Router, worker: Worker, gates: Gates, kind: type[OpenAIChatModel] | type[OpenAIResponsesModel]
) -> None:
    async with openai_client(gateway) as client:
        asker = Agent(kind(MODEL, provider=OpenAIProvider(openai_client=client)), instructions="Be brief.")
        prompt = script(["say", "one "], ["say", "two"], ["usage", {"input_tokens": 3, "output_tokens": 2}])
        first = await asker.run(prompt)
        assert (first.output, first.usage.input_tokens, first.usage.output_tokens) == ("one two", 3, 2)
        async with asker.run_stream(prompt, message_history=first.all_messages()) as stream:
            assert "".join([piece async for piece in stream.stream_text(delta=True, debounce_by=None)]) == "one two"
    context = gates.contexts[-1]
    assert [(turn["role"], turn["text"]) for turn in context.conversation_history] == [("user", prompt), ("agent", "one two")]
    assert context.metadata["instructions"].startswith("Be brief.")
