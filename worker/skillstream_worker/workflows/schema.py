"""What a workflow consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from .node import Node


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node and what follows it.

    More than one connection needs a RouterNode, which `is_router` says. `concurrent_nodes` belong to a ConcurrentNode
    and have no connections of their own.
    """

    node: type[Node]
    connections: Sequence[type[Node]] = ()
    is_router: bool = False
    description: str | None = None
    concurrent_nodes: Sequence[type[Node]] = ()


@dataclass(frozen=True, slots=True)
class WorkflowSchema:
    """The nodes of a workflow, the first of them, and the model of the event that it takes.

    A node without a config of its own ends the workflow.
    """

    event_schema: type[BaseModel]
    start: type[Node]
    nodes: Sequence[NodeConfig] = field(default_factory=list)
    description: str | None = None

    def configs(self) -> Mapping[type[Node], NodeConfig]:
        """The config of every node that is named anywhere."""
        configs = {config.node: config for config in self.nodes}
        named = [self.start, *(node for config in self.nodes for node in (*config.connections, *config.concurrent_nodes))]
        for node in named:
            configs.setdefault(node, NodeConfig(node))
        return configs
