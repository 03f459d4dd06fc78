"""A step that chooses the next one."""

from __future__ import annotations

from collections.abc import Sequence

from .context import TaskContext
from .node import Node

Choice = Node | type[Node]


class RouterNode(Node):
    """Responsible for choosing the node that follows, out of the connections that its NodeConfig lists.

    Either override `determine_next_node`, or set `routes` to rules, themselves RouterNodes, of which the first that
    chooses anything counts, and `fallback` to what follows where none does.
    """

    routes: Sequence[RouterNode] = ()
    fallback: Choice | None = None

    async def process(self, task_context: TaskContext) -> TaskContext:
        """Nothing, unless overridden."""
        return task_context

    def determine_next_node(self, task_context: TaskContext) -> Choice | None:
        """The node that follows, as class or instance; None ends the workflow, or leaves the choice to the next rule."""
        for rule in self.routes:
            chosen = rule.determine_next_node(task_context)
            if chosen is not None:
                return chosen
        return self.fallback
