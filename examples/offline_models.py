"""The workflows of these examples without a network: a pydantic-ai FunctionModel stands in for every model.

`skillstream dev examples.offline_models:writer` (or `:thinker`, `:panel`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from skillstream_worker.workflows import AgentConfig, replace_models

from .streaming_workflow import agent as panel
from .structured_streaming import agent as thinker
from .text_streaming import agent as writer

__all__ = ["panel", "thinker", "writer"]

_PIECE_CHARS = 12


async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Repeats the question word by word; where output fields are asked for, fills each with it."""
    questions = [part.content for message in messages if isinstance(message, ModelRequest) for part in message.parts
                 if isinstance(part, UserPromptPart)]  # fmt: skip
    question = str(questions[-1])
    if not info.output_tools:
        yield f"Question {len(questions)}:"
        for word in question.split():
            yield f" {word}"
        return
    tool = info.output_tools[0]
    fields = {name: f"{name} about {question}" for name in tool.parameters_json_schema["properties"]}
    arguments = json.dumps(fields)
    yield {0: DeltaToolCall(name=tool.name)}
    for start in range(0, len(arguments), _PIECE_CHARS):
        yield {0: DeltaToolCall(json_args=arguments[start : start + _PIECE_CHARS])}


def offline_model(config: AgentConfig) -> FunctionModel:
    """The stand-in for any model."""
    return FunctionModel(stream_function=say, model_name=f"offline-{config.model_name}")


replace_models(offline_model)
