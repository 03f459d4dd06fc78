"""A workflow for worker processes: its model speaks, then waits at the test's unix socket, then goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

from skillstream_worker import Agent
from skillstream_worker.workflows import (
    AgentConfig,
    AgentStreamingNode,
    ModelProvider,
    Node,
    NodeConfig,
    OpenAIChatSchema,
    StreamItem,
    TaskContext,
    Workflow,
    WorkflowSchema,
    replace_models,
)


async def say(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    """Speaks, then waits at the socket whose path is the question."""
    yield "Tides "
    reader, writer = await asyncio.open_unix_connection(cast(Any, messages[-1].parts[-1]).content)
    try:
        writer.write(b"speaking\n")
        await reader.read()
    finally:
        writer.close()
    yield "come and go."


class Speak(AgentStreamingNode):
    """Streams what the model says."""

    def get_agent_config(self) -> AgentConfig:
        """Any: the function above stands in."""
        return AgentConfig(model_provider=ModelProvider.OPENAI, model_name="none")

    async def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
        """Streams it."""
        async with self.agent.run_stream(task_context.event.get_message()) as result:
            async for chunk in self.stream_text_deltas(result):
                yield chunk


class Count(Node):
    """Counts what was said, behind it."""

    async def process(self, task_context: TaskContext) -> TaskContext:
        """Saves the count as metadata."""
        task_context.metadata["characters"] = len(self.get_output(Speak))
        return task_context


class Flow(Workflow):
    """Speak, then count."""

    workflow_schema = WorkflowSchema(
        event_schema=OpenAIChatSchema, start=Speak, nodes=[NodeConfig(node=Speak, connections=[Count])]
    )


replace_models(lambda config: FunctionModel(stream_function=say))
agent = Agent("flow", "A workflow in processes of its own")
agent.skill("speak")(Flow().as_skill())
