"""Errors of workflows: of their schemas, found before anything runs, and of their nodes."""

from __future__ import annotations

from .errors import SkillstreamError


class InvalidWorkflow(SkillstreamError):
    """The schema of a workflow cannot be run."""

    code = "invalid_workflow"
    hint = "the text names the workflow and the node"


class WorkflowCycle(InvalidWorkflow):
    """The nodes of a workflow lead back to where they came from."""

    code = "workflow_cycle"
    hint = "a workflow goes one way; loop inside a node"


class UnreachableNode(InvalidWorkflow):
    """A node of a workflow is never run."""

    code = "unreachable_node"
    hint = "connect it, or take it out of the schema"


class FanOutWithoutRouter(InvalidWorkflow):
    """A node has several connections and nobody who chooses among them."""

    code = "fan_out_without_router"
    hint = "make it a RouterNode to choose one, or a ConcurrentNode to run all"


class InvalidEvent(SkillstreamError):
    """What a workflow was given does not fit its event schema."""

    code = "invalid_event"
    hint = "send the event as the task's data, or as JSON in its message; the text names the field"


class InvalidNodeOutput(SkillstreamError):
    """A node returned, yielded or chose what no node may."""

    code = "invalid_node_output"
    hint = "process returns the context, or yields completion chunks; a router chooses one of its connections"


class ModelUnavailable(SkillstreamError):
    """The model of an agent node cannot be used."""

    code = "model_unavailable"
    hint = "install the package of its provider and set its key"
