"""A step of a workflow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from .context import TaskContext


class Node(ABC):
    """Responsible for one step: reads the context, saves its output there. A new instance is made for each run."""

    node_name: ClassVar[str]
    """The class's own name, under which its output stands in the context."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Names the node."""
        super().__init_subclass__(**options)
        cls.node_name = cls.__name__

    def __init__(self, task_context: TaskContext | None = None) -> None:
        self.task_context = task_context if task_context is not None else TaskContext()

    def __repr__(self) -> str:
        return f"<{self.node_name}>"

    @classmethod  # noqa: B027 (most nodes have nothing to prepare)
    def prepare(cls) -> None:
        """Called once where a workflow is made, before any of its tasks."""

    @abstractmethod
    def process(self, task_context: TaskContext) -> Any:
        """Does the step: an async function that returns the context (of a StreamingNode: an async generator)."""

    async def cleanup(self) -> None:  # noqa: B027 (most nodes have nothing to clean up)
        """Runs after `process`, however that ended: completed, failed, canceled, or its reader left."""

    def save_output(self, output: Any) -> None:
        """Keeps a value, such as a pydantic model or text, as this node's output."""
        self.task_context.nodes[self.node_name] = output

    def get_output(self, node: type[Node]) -> Any:
        """What another node saved, None where it saved nothing."""
        return self.task_context.nodes.get(node.node_name)
