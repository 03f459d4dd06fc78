"""Checks of a workflow's schema: made before anything runs."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from pydantic import BaseModel

from skillstream_schemas.workflow_errors import FanOutWithoutRouter, InvalidWorkflow, UnreachableNode, WorkflowCycle

from .concurrent_node import ConcurrentNode
from .node import Node
from .router_node import RouterNode
from .schema import NodeConfig, WorkflowSchema
from .streaming_node import StreamingNode

Configs = Mapping[type[Node], NodeConfig]


def check_schema(name: str, schema: WorkflowSchema) -> None:
    """Raises InvalidWorkflow, or its subclass that says what is wrong, for the workflow `name`."""
    _check_types(name, schema)
    configs = schema.configs()
    _check_names(name, schema, configs)
    for config in configs.values():
        _check_process(name, config.node)
        _check_config(name, config, configs)
    _check_cycle(name, configs)
    _check_reach(name, schema.start, configs)


def _check_types(name: str, schema: WorkflowSchema) -> None:
    if not _is_class(schema.event_schema, BaseModel):
        raise InvalidWorkflow(f"{name}: event_schema {schema.event_schema!r} is no pydantic model")
    for node in schema.configs():
        if not _is_class(node, Node):
            raise InvalidWorkflow(f"{name}: {node!r} is no Node class")


def _is_class(value: object, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base)


def _check_names(name: str, schema: WorkflowSchema, configs: Configs) -> None:
    """Outputs stand under the node's name: it must tell the nodes apart."""
    twice = [node for node, count in Counter(config.node for config in schema.nodes).items() if count > 1]
    if twice:
        raise InvalidWorkflow(f"{name}: {twice[0].node_name} has two configs")
    alike = [node_name for node_name, count in Counter(node.node_name for node in configs).items() if count > 1]
    if alike:
        raise InvalidWorkflow(f"{name}: two nodes are called {alike[0]}")


def _check_process(name: str, node: type[Node]) -> None:
    lacking = ", ".join(sorted(getattr(node, "__abstractmethods__", ())))
    if lacking:
        raise InvalidWorkflow(f"{name}: {node.node_name} does not define {lacking}")
    streams = issubclass(node, StreamingNode)
    if inspect.isasyncgenfunction(node.process) and not streams:
        raise InvalidWorkflow(f"{name}: {node.node_name}.process yields, but it is no StreamingNode")
    if inspect.iscoroutinefunction(node.process) and streams:
        raise InvalidWorkflow(f"{name}: {node.node_name} is a StreamingNode, but its process does not yield")


def _check_config(name: str, config: NodeConfig, configs: Configs) -> None:
    node = config.node
    is_router, is_concurrent = issubclass(node, RouterNode), issubclass(node, ConcurrentNode)
    if config.is_router and not is_router:
        raise InvalidWorkflow(f"{name}: {node.node_name} is said to be a router but is no RouterNode")
    if len(config.connections) > 1 and not is_router:
        raise FanOutWithoutRouter(f"{name}: {node.node_name} has {len(config.connections)} connections and is no RouterNode")
    if bool(config.concurrent_nodes) is not is_concurrent:
        lacking = "has no concurrent_nodes" if is_concurrent else "has concurrent_nodes but is no ConcurrentNode"
        raise InvalidWorkflow(f"{name}: {node.node_name} {lacking}")
    for inner in config.concurrent_nodes:
        if configs[inner].connections or issubclass(inner, RouterNode):
            raise InvalidWorkflow(f"{name}: {inner.node_name} runs inside {node.node_name}, where nothing can follow it")


def _check_cycle(name: str, configs: Configs) -> None:
    followers = {node: (*config.connections, *config.concurrent_nodes) for node, config in configs.items()}
    try:
        TopologicalSorter(followers).prepare()
    except CycleError as error:
        ring = " → ".join(node.node_name for node in reversed(error.args[1]))
        raise WorkflowCycle(f"{name}: {ring}") from None


def _check_reach(name: str, start: type[Node], configs: Configs) -> None:
    reached: set[type[Node]] = set()
    ahead = [start]
    while ahead:
        node = ahead.pop()
        if node not in reached:
            reached.add(node)
            ahead += [*configs[node].connections, *configs[node].concurrent_nodes]
    lost = [node.node_name for node in configs if node not in reached]
    if lost:
        raise UnreachableNode(f"{name}: {', '.join(lost)} cannot be reached from {start.node_name}")
