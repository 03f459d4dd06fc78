"""One run of a workflow's nodes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, nullcontext
from contextvars import ContextVar
from typing import Any

from skillstream_schemas.workflow_errors import InvalidNodeOutput

from .context import TaskContext
from .node import Node
from .patches import apply_patch
from .router_node import RouterNode
from .schema import NodeConfig
from .streaming_node import StreamingNode, StreamItem, content_of
from .tracing import Tracing

log = logging.getLogger(__name__)

Emit = Callable[[StreamItem], Awaitable[None]]

current_walk: ContextVar[Walk] = ContextVar("current_walk")
"""The walk that a node runs in; tasks that it starts are in it too."""


class _Said:
    """What a streaming node said: its text, or the last of its structured content."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._structured: Any = None

    def add(self, content: Any) -> None:
        if isinstance(content, str):
            self._texts.append(content)
        elif isinstance(content, dict):
            self._structured = content
        elif isinstance(content, list):
            self._structured = apply_patch(self._structured, content)

    @property
    def output(self) -> Any:
        return "".join(self._texts) if self._structured is None else self._structured


class Walk:
    """Responsible for running nodes, one behind the other from the first until none follows, and what they stream."""

    def __init__(self, configs: Mapping[type[Node], NodeConfig], tracing: Tracing, emit: Emit) -> None:
        self.configs, self.tracing = configs, tracing
        self._emit = emit

    async def run(self, start: type[Node], task_context: TaskContext) -> None:
        """Runs the nodes; raises what a node raises, behind its clean-up, and InvalidNodeOutput."""
        token = current_walk.set(self)
        try:
            following: type[Node] | None = start
            while following is not None:
                node = await self.run_node(following, task_context)
                following = None if task_context.should_stop else self._behind(node, task_context)
        finally:
            current_walk.reset(token)

    async def run_node(self, node_type: type[Node], task_context: TaskContext, *, label: bool = False) -> Node:
        """Runs one node and its clean-up. With `label`, what it streams carries its name, and an end of its own."""
        with self.tracing.span(node_type.node_name):
            node = node_type(task_context=task_context)
            try:
                if isinstance(node, StreamingNode):
                    await self._stream(node, task_context, label)
                else:
                    _check_same(node, await node.process(task_context), task_context)
            except BaseException:
                await _clean_up_behind_error(node)
                raise
            await node.cleanup()
        return node

    async def _stream(self, node: StreamingNode, task_context: TaskContext, label: bool) -> None:
        said = _Said()
        source: Any = node.process(task_context)  # Any: an author's generator, whatever it was declared as
        try:
            async with aclosing(source) if hasattr(source, "aclose") else nullcontext(source) as items:
                async for item in items:
                    if not isinstance(item, dict):
                        raise InvalidNodeOutput(f"{node.node_name} yielded {type(item).__name__}, not a completion chunk")
                    said.add(content_of(item))
                    await self._emit({**item, "node": node.node_name} if label else item)
        finally:
            task_context.nodes.setdefault(node.node_name, said.output)
        if label:
            end = {"index": 0, "delta": {}, "finish_reason": "stop"}
            await self._emit({"object": "chat.completion.chunk", "model": "default", "choices": [end], "node": node.node_name})

    def _behind(self, node: Node, task_context: TaskContext) -> type[Node] | None:
        connections = self.configs[type(node)].connections
        if not isinstance(node, RouterNode):
            return connections[0] if connections else None
        chosen = node.determine_next_node(task_context)
        following = type(chosen) if isinstance(chosen, Node) else chosen
        if following is not None and following not in connections:
            raise InvalidNodeOutput(f"{node.node_name} chose {following!r}, which is none of its connections")
        return following


def _check_same(node: Node, returned: Any, task_context: TaskContext) -> None:
    if returned is not task_context:
        raise InvalidNodeOutput(f"{node.node_name}.process returned {type(returned).__name__}, not the context that it got")


async def _clean_up_behind_error(node: Node) -> None:
    try:
        await node.cleanup()
    except Exception:
        log.exception("the clean-up of %s raised; what its process raised is told", node.node_name)
