"""A node that asks a model, importable without pydantic-ai."""

from __future__ import annotations

from skillstream_worker.workflows import AgentConfig, AgentNode, ModelProvider, TaskContext


class Asking(AgentNode):
    """Asks."""

    def get_agent_config(self) -> AgentConfig:
        """Any model."""
        return AgentConfig(model_provider=ModelProvider.ANTHROPIC, model_name="none")

    async def process(self, task_context: TaskContext) -> TaskContext:
        """Saves the answer."""
        result = await self.agent.run("x")
        self.save_output(result.output)
        return task_context
