"""A step that runs several nodes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from skillstream_schemas.workflow_errors import InvalidWorkflow

from .context import TaskContext
from .node import Node
from .relay import ended
from .streaming_node import StreamingNode
from .walk import current_walk

Step = Callable[[], Awaitable[object]]


class ConcurrentNode(Node):
    """Responsible for running the `concurrent_nodes` of its NodeConfig at once, on one context.

    Outputs of those that do not stream, by name in the order of the config, are its own output, unless it saves another
    one behind them. Streaming nodes among them stream, each item labelled with its node's name under `node`.
    """

    async def process(self, task_context: TaskContext) -> TaskContext:
        """Runs them, unless overridden."""
        return await self.execute_nodes_concurrently(task_context)

    async def execute_nodes_concurrently(self, task_context: TaskContext) -> TaskContext:
        """Runs the nodes to their end; the first that raises has the others cancelled, and its error is raised.

        Raises InvalidWorkflow outside of a workflow.
        """
        walk = current_walk.get(None)
        if walk is None:
            raise InvalidWorkflow(f"{self.node_name} runs inside a workflow only: its NodeConfig names the nodes")
        nodes = walk.configs[type(self)].concurrent_nodes
        await _together([partial(walk.run_node, node, task_context, label=True) for node in nodes])
        outputs = {node.node_name: self.get_output(node) for node in nodes if not issubclass(node, StreamingNode)}
        if outputs:
            self.save_output(outputs)
        return task_context


async def _together(steps: list[Step]) -> None:
    errors: list[BaseException] = []

    async def run(step: Step) -> None:
        try:
            await step()
        except BaseException as error:  # SystemExit and the like would end the event loop here
            errors.append(error)
            raise asyncio.CancelledError from error

    tasks = [asyncio.create_task(run(step)) for step in steps]
    try:
        pending = set(tasks)
        while pending and not errors:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await ended(tasks)
    if errors:
        raise errors[0]
