"""A workflow of one node that streams a model's text, as a skill.

`skillstream dev examples.text_streaming:agent` asks the real model (OPENAI_API_KEY, pydantic-ai-slim[openai]);
`examples.offline_models:writer` is the same agent without a network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from skillstream_worker import Agent
from skillstream_worker.workflows import (
    AgentConfig,
    AgentStreamingNode,
    ModelProvider,
    NodeConfig,
    OpenAIChatSchema,
    TaskContext,
    Workflow,
    WorkflowSchema,
)


class TextStreamingNode(AgentStreamingNode):
    """Streams the answer to the last message, knowing the ones before."""

    def get_agent_config(self) -> AgentConfig:
        """Text, of a small model."""
        return AgentConfig(model_provider=ModelProvider.OPENAI, model_name="gpt-5.4-mini", output_type=str)

    async def process(self, task_context: TaskContext) -> AsyncIterator[dict[str, Any]]:
        """Passes the model's text on as it comes."""
        event: OpenAIChatSchema = task_context.event
        async with self.agent.run_stream(user_prompt=event.get_message(), message_history=self.message_history()) as result:
            async for chunk in self.stream_text_deltas(result):
                yield chunk


class TextWorkflow(Workflow):
    """That node alone."""

    workflow_schema = WorkflowSchema(
        event_schema=OpenAIChatSchema, start=TextStreamingNode, nodes=[NodeConfig(node=TextStreamingNode)]
    )


agent = Agent(name="writer", description="Answers in text")
agent.skill(name="chat", description="Streams an answer", price_usd="0.01")(TextWorkflow().as_skill())
