"""Nodes that do what the test's event says, and write down what happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, Field

from skillstream_worker.workflows import (
    ConcurrentNode,
    Node,
    NodeConfig,
    RouterNode,
    StreamingNode,
    StreamItem,
    TaskContext,
    Workflow,
    WorkflowSchema,
)


class Play(BaseModel):
    """What nodes are to do: `says` of a node's name is what it streams, an exception's name is raised."""

    says: dict[str, list[Any]] = Field(default_factory=dict)
    route: str = "Left"


class Log:
    """Responsible for what happened, in order, and for gates at which nodes wait."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def clear(self) -> None:
        """Forgets all."""
        self.entries, self.gates = [], {}

    def gate(self, name: str) -> asyncio.Event:
        """The gate of a name."""
        return self.gates.setdefault(name, asyncio.Event())


log = Log()
RAISED: dict[str, BaseException] = {}


class Boom(Exception):
    """Raised by nodes."""


class Plain(Node):
    """Saves its name, or raises."""

    async def process(self, task_context: TaskContext) -> TaskContext:
        log.entries.append(f"{self.node_name} runs")
        for step in task_context.event.says.get(self.node_name, []):
            await act(step, self.node_name)
        self.save_output(f"out of {self.node_name}")
        return task_context

    async def cleanup(self) -> None:
        log.entries.append(f"{self.node_name} cleaned")
        if self.node_name in RAISED:
            raise RAISED[self.node_name]


class Speaker(StreamingNode):
    """Streams what the event says."""

    async def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
        log.entries.append(f"{self.node_name} runs")
        try:
            for step in task_context.event.says.get(self.node_name, []):
                if await act(step, self.node_name):
                    yield self.completion_chunk(step)
        finally:
            log.entries.append(f"{self.node_name} closed")

    async def cleanup(self) -> None:
        log.entries.append(f"{self.node_name} cleaned")


async def act(step: Any, name: str) -> bool:
    """Does a step that is no output; True for output."""
    match step:
        case ["wait", gate]:
            log.entries.append(f"{name} waits")
            await log.gate(gate).wait()
        case ["turn"]:
            await asyncio.sleep(0)
        case ["open", gate]:
            log.gate(gate).set()
        case ["raise", "Boom"]:
            raise Boom(name)
        case ["raise", "SystemExit"]:
            raise SystemExit(name)
        case _:
            return True
    return False


class A(Plain):
    pass


class B(Plain):
    pass


class Left(Plain):
    pass


class Right(Plain):
    pass


class S1(Speaker):
    pass


class S2(Speaker):
    pass


class Chooser(RouterNode):
    def determine_next_node(self, task_context: TaskContext) -> type[Node] | None:
        return {"Left": Left, "Right": Right, "A": A}.get(task_context.event.route)


class Both(ConcurrentNode):
    pass


def workflow(start: type[Node], *nodes: NodeConfig, event: type[BaseModel] = Play) -> type[Workflow]:
    """A workflow class."""
    schema = WorkflowSchema(event_schema=event, start=start, nodes=nodes)
    return type("Made", (Workflow,), {"workflow_schema": schema})


def chain(*nodes: type[Node]) -> list[NodeConfig]:
    """Configs of nodes, each behind the one before."""
    return [NodeConfig(node=node, connections=[behind]) for node, behind in pairwise(nodes)]


def texts(items: Sequence[StreamItem], node: str | None = None) -> str:
    """The text of all items, or those of one node."""
    contents = [item["choices"][0]["delta"].get("content", "") for item in items if node is None or item.get("node") == node]
    return "".join(contents)


async def gather(source: AsyncIterator[StreamItem], items: list[StreamItem]) -> None:
    """Adds to `items` what comes before an error too."""
    async for item in source:
        items.append(item)  # noqa: PERF401
