"""What the nodes of one run share."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from skillstream_worker.context import TaskContext as SkillContext


class TaskContext(BaseModel):
    """One run of a workflow: its event, what its nodes saved, and metadata of the nodes' own.

    `nodes` holds the output of each node under its class name, in the order in which they saved. `metadata` is JSON
    and goes into the task's final. `skill` is the context of the task that runs the workflow (delegate, status, usage,
    conversation_history, cancelled); None where it runs without a task. `trace_id` is set where the run is traced.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    event: Any = None
    nodes: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    should_stop: bool = False
    trace_id: str | None = None
    skill: SkillContext | None = Field(default=None, exclude=True, repr=False)

    def update_node(self, node_name: str, **values: Any) -> None:
        """Adds values to a node's entry, which is a dict of them."""
        self.nodes[node_name] = {**self.nodes.get(node_name, {}), **values}

    def stop_workflow(self) -> None:
        """No further node runs after this one."""
        self.should_stop = True
