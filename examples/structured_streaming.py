"""A workflow of one node that streams a model's structured output: as snapshots, and as JSON Patches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from skillstream_worker import Agent
from skillstream_worker.workflows import (
    AgentConfig,
    AgentStreamingNode,
    ModelProvider,
    OpenAIChatSchema,
    TaskContext,
    Workflow,
    WorkflowSchema,
)


class StructuredStreamingNode(AgentStreamingNode):
    """Streams a thought and a reply, field by field; each chunk is all that there is so far."""

    class OutputType(AgentStreamingNode.OutputType):
        """What the model fills in."""

        thinking: str
        reply: str

    def get_agent_config(self) -> AgentConfig:
        """Structured output, of a small model."""
        return AgentConfig(model_provider=ModelProvider.OPENAI, model_name="gpt-5.4-mini", output_type=self.OutputType)

    async def process(self, task_context: TaskContext) -> AsyncIterator[dict[str, Any]]:
        """Passes the growing output on."""
        event: OpenAIChatSchema = task_context.event
        async with self.agent.run_stream(user_prompt=event.get_message()) as result:
            async for chunk in self.stream_structured_deltas(result):
                yield chunk


class PatchStreamingNode(StructuredStreamingNode):
    """The same, but each chunk says what changed."""

    async def process(self, task_context: TaskContext) -> AsyncIterator[dict[str, Any]]:
        """Passes the changes on."""
        event: OpenAIChatSchema = task_context.event
        async with self.agent.run_stream(user_prompt=event.get_message()) as result:
            async for chunk in self.stream_structured_deltas(result, as_patch=True):
                yield chunk


class StructuredWorkflow(Workflow):
    """Snapshots."""

    workflow_schema = WorkflowSchema(event_schema=OpenAIChatSchema, start=StructuredStreamingNode)


class PatchWorkflow(Workflow):
    """Patches."""

    workflow_schema = WorkflowSchema(event_schema=OpenAIChatSchema, start=PatchStreamingNode)


agent = Agent(name="thinker", description="Answers with its thoughts beside the reply")
agent.skill(name="think", description="Streams snapshots")(StructuredWorkflow().as_skill())
agent.skill(name="think-patched", description="Streams JSON Patches")(PatchWorkflow().as_skill())
