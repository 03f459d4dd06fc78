"""A schema that cannot run is refused before anything runs, with a code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from skillstream_schemas.workflow_errors import FanOutWithoutRouter, InvalidWorkflow, UnreachableNode, WorkflowCycle
from skillstream_worker.workflows import Node, NodeConfig, StreamingNode, TaskContext, Workflow, WorkflowSchema

from .nodes import S1, S2, A, B, Both, Chooser, Left, Play, Right, chain, workflow

OTHER_A = type("A", (A,), {})


@pytest.mark.parametrize(
    ("nodes", "error", "words"),
    [
        ([*chain(A, B), *chain(B, A)], WorkflowCycle, "A → B → A|B → A → B"),
        ([NodeConfig(node=A, connections=[A])], WorkflowCycle, "A → A"),
        ([NodeConfig(node=A, connections=[Both]), NodeConfig(node=Both, concurrent_nodes=[Both])], WorkflowCycle, "Both → Both"),
        ([NodeConfig(node=A), *chain(B, Left)], UnreachableNode, "B, Left cannot be reached from A"),
        ([NodeConfig(node=A, connections=[Left, Right])], FanOutWithoutRouter, "A has 2 connections"),
        ([NodeConfig(node=A, is_router=True)], InvalidWorkflow, "A is said to be a router"),
        ([NodeConfig(node=A, concurrent_nodes=[S1])], InvalidWorkflow, "A has concurrent_nodes but is no ConcurrentNode"),
        ([*chain(A, Both)], InvalidWorkflow, "Both has no concurrent_nodes"),
        ([*chain(A, Both, B), NodeConfig(node=Both, concurrent_nodes=[S1])], InvalidWorkflow, "Both has two configs"),
        ([*chain(A, OTHER_A)], InvalidWorkflow, "two nodes are called A"),
        (
            [NodeConfig(node=A, connections=[Both]), NodeConfig(node=Both, concurrent_nodes=[S1, S2]), *chain(S2, B)],
            InvalidWorkflow,
            "S2 runs inside Both",
        ),
        (
            [NodeConfig(node=A, connections=[Both]), NodeConfig(node=Both, concurrent_nodes=[Chooser])],
            InvalidWorkflow,
            "Chooser runs inside Both",
        ),
    ],
)
def test_refused(nodes: list[NodeConfig], error: type[InvalidWorkflow], words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        workflow(A, *nodes)()
    assert type(caught.value) is error
    assert caught.value.code == error.code


class Yields(Node):
    async def process(self, task_context: TaskContext) -> AsyncIterator[Any]:
        yield 1


class Returns(StreamingNode):
    async def process(self, task_context: TaskContext) -> Any:  # type: ignore[override]
        return task_context


class Lacks(Node):
    pass


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (Yields, "Yields.process yields, but it is no StreamingNode"),
        (Returns, "Returns is a StreamingNode, but its process does not yield"),
        (Lacks, "Lacks does not define process"),
    ],
)
def test_a_process_that_cannot_run(node: type[Node], words: str) -> None:
    with pytest.raises(InvalidWorkflow, match=words):
        workflow(A, *chain(A, node))()


@pytest.mark.parametrize("start", ["A", int, None])
def test_a_start_that_is_no_node(start: Any) -> None:
    with pytest.raises(InvalidWorkflow, match="is no Node class"):
        workflow(start)()


def test_an_event_schema_that_is_no_model() -> None:
    with pytest.raises(InvalidWorkflow, match="event_schema"):
        workflow(A, event=dict)()  # type: ignore[arg-type]


def test_what_runs_is_accepted_and_tells_whether_it_streams() -> None:
    routed = workflow(A, *chain(A, Chooser), NodeConfig(node=Chooser, connections=[Left, Right], is_router=True))
    assert not routed().streams
    assert workflow(Both, NodeConfig(node=Both, concurrent_nodes=[A, S1]))().streams
    assert "nodes=Both, A, S1 streams=True" in repr(workflow(Both, NodeConfig(node=Both, concurrent_nodes=[A, S1]))())


def test_a_skill_is_refused_where_its_agent_is_written() -> None:
    class Wrong(Workflow):
        workflow_schema = WorkflowSchema(event_schema=Play, start=A, nodes=chain(A, B, A))

    with pytest.raises(InvalidWorkflow):
        Wrong().as_skill()


def test_names_of_nodes_are_their_classes() -> None:
    assert (A.node_name, repr(A())) == ("A", "<A>")
    assert isinstance(A(), Node)


def test_a_workflow_has_a_schema() -> None:
    class Empty(Workflow):
        pass

    with pytest.raises(InvalidWorkflow, match="Empty has no workflow_schema"):
        Empty()
