"""Plain and streaming nodes in one workflow, run by itself: `python -m examples.streaming_workflow "your question"`.

The same workflow is a skill of the agent below. Two models answer at once, each chunk labelled with its node; a plain
node before them cleans the question, one behind them counts what they said.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from skillstream_worker import Agent
from skillstream_worker.workflows import (
    ConcurrentNode,
    Node,
    NodeConfig,
    OpenAIChatSchema,
    RouterNode,
    TaskContext,
    Workflow,
    WorkflowSchema,
)

from .text_streaming import TextStreamingNode


class CleanNode(Node):
    """Keeps the question without the spaces around it."""

    async def process(self, task_context: TaskContext) -> TaskContext:
        """Saves it."""
        self.save_output(task_context.event.get_message().strip())
        return task_context


class EmptyRouter(RouterNode):
    """Sends a question to both models, and nothing to nobody."""

    def determine_next_node(self, task_context: TaskContext) -> type[Node]:
        """Looks at the cleaned question."""
        return BothNode if self.get_output(CleanNode) else NothingAskedNode


class NothingAskedNode(Node):
    """Says that there is no question."""

    async def process(self, task_context: TaskContext) -> TaskContext:
        """Saves the sentence."""
        self.save_output("Nothing was asked.")
        return task_context


class ShortNode(TextStreamingNode):
    """Answers."""


class LongNode(TextStreamingNode):
    """Answers beside the other."""


class BothNode(ConcurrentNode):
    """Has both answer at once."""


class CountNode(Node):
    """Counts characters; they go into the task's final."""

    async def process(self, task_context: TaskContext) -> TaskContext:
        """Saves them as metadata."""
        task_context.metadata["characters"] = {node.node_name: len(self.get_output(node)) for node in (ShortNode, LongNode)}
        return task_context


class MyStreamingWorkflow(Workflow):
    """Clean, choose, answer, count."""

    workflow_schema = WorkflowSchema(
        event_schema=OpenAIChatSchema,
        start=CleanNode,
        nodes=[
            NodeConfig(node=CleanNode, connections=[EmptyRouter]),
            NodeConfig(node=EmptyRouter, connections=[BothNode, NothingAskedNode], is_router=True),
            NodeConfig(node=BothNode, connections=[CountNode], concurrent_nodes=[ShortNode, LongNode]),
        ],
    )


agent = Agent(name="panel", description="Two models answer at once")
agent.skill(name="ask", description="Streams both answers")(MyStreamingWorkflow(enable_tracing=True).as_skill())


async def main(question: str) -> None:
    """Prints each event of a run without a broker."""
    workflow = MyStreamingWorkflow(enable_tracing=True)
    event_data: dict[str, Any] = {"messages": [{"role": "user", "content": question}]}
    async for event in workflow.run_stream_async(event_data):
        print(event)


if __name__ == "__main__":
    if "OPENAI_API_KEY" not in os.environ:
        from . import offline_models  # noqa: F401

        print("no OPENAI_API_KEY: a stand-in for the model answers", file=sys.stderr)
    asyncio.run(main(" ".join(sys.argv[1:]) or "What makes the tides?"))
