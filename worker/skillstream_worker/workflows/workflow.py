"""A workflow: nodes, in an order that its schema gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import BaseModel, ValidationError

from skillstream_schemas.request import describe
from skillstream_schemas.workflow_errors import InvalidEvent, InvalidWorkflow
from skillstream_worker.skill import StreamingFunction

from .context import TaskContext
from .relay import Put, Relay
from .schema import WorkflowSchema
from .streaming_node import StreamingNode, StreamItem
from .task_skill import TaskSkill
from .tracing import Tracing, trace_id_of
from .validation import check_schema
from .walk import Walk

_AHEAD = 64
"""Items that nodes may stream before the reader has taken them."""

Event = BaseModel | Mapping[str, Any]


class Workflow:
    """Responsible for running the nodes of `workflow_schema` on an event.

    `enable_tracing` records an OpenTelemetry span for the run, for each node, and for what agent nodes ask of models.
    Raises InvalidWorkflow, or its subclass that says what is wrong, where the schema cannot be run, and MissingExtra.
    """

    workflow_schema: ClassVar[WorkflowSchema]

    def __init__(self, enable_tracing: bool = False) -> None:
        if not hasattr(self, "workflow_schema"):
            raise InvalidWorkflow(f"{type(self).__name__} has no workflow_schema")
        check_schema(type(self).__name__, self.workflow_schema)
        self._configs = self.workflow_schema.configs()
        for node in self._configs:
            node.prepare()
        self._tracing = Tracing(enabled=enable_tracing)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} nodes={', '.join(node.node_name for node in self._configs)} streams={self.streams}>"

    @property
    def streams(self) -> bool:
        """True where any of its nodes is a StreamingNode."""
        return any(issubclass(node, StreamingNode) for node in self._configs)

    def run(self, event: Event, context: TaskContext | None = None) -> TaskContext:
        """As `run_async`, for code without a running event loop."""
        return asyncio.run(self.run_async(event, context))

    async def run_async(self, event: Event, context: TaskContext | None = None) -> TaskContext:
        """Runs all nodes and returns the context; what streaming nodes said stands in it.

        `event` is an instance of the schema's event model, or what it validates; `context` is given where the run
        goes on with the outputs of another. Raises InvalidEvent, InvalidNodeOutput, and what a node raises.
        """
        task_context = self._begin(event, context)
        await self._walk(task_context, _drop)
        return task_context

    async def run_stream_async(self, event: Event, context: TaskContext | None = None) -> AsyncIterator[StreamItem]:
        """Runs all nodes and yields what streaming nodes say as they say it; `context` holds everything afterwards.

        Items of nodes inside a ConcurrentNode carry the node's name under `node`, and the last one of each has a
        `finish_reason`. Raises as `run_async`, behind the last item. Closing the iterator cancels the nodes and waits
        for their clean-up.
        """
        task_context = self._begin(event, context)
        async with Relay[StreamItem](partial(self._walk, task_context), _AHEAD) as relay:
            while items := await relay.take():
                for item in items:
                    yield item

    def as_skill(self) -> StreamingFunction:
        """The function to register: `agent.skill(name="chat", …)(ChatWorkflow().as_skill())`.

        The event is the task's `data`; without that its message, as JSON, or as what the event schema's own
        `from_message(message, history)` makes of it. The output of the last node that saved one is the result: text where
        nothing was streamed, a model or dict as `data`, a Response with a final status as the end. The context's
        metadata goes into the final.
        """
        return TaskSkill(self).run

    def _begin(self, event: Event, context: TaskContext | None) -> TaskContext:
        model = self.workflow_schema.event_schema
        task_context = TaskContext() if context is None else context
        try:
            task_context.event = event if isinstance(event, model) else model.model_validate(event)
        except ValidationError as error:
            raise InvalidEvent(f"{type(self).__name__}: {describe(error)}") from None
        return task_context

    async def _walk(self, task_context: TaskContext, emit: Put[StreamItem]) -> None:
        traceparent = None if task_context.skill is None else task_context.skill.traceparent
        with self._tracing.span(type(self).__name__, traceparent) as span:
            task_context.trace_id = trace_id_of(span) or task_context.trace_id
            await Walk(self._configs, self._tracing, emit).run(self.workflow_schema.start, task_context)


async def _drop(item: StreamItem) -> None:
    """Nobody follows: the context keeps what was said."""
