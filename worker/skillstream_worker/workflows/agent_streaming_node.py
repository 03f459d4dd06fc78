"""A step that streams what a model says."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from .agent_node import AgentNode
from .context import TaskContext
from .patches import make_patch
from .relay import Put, Relay
from .streaming_node import StreamingNode, StreamItem

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.result import StreamedRunResult

_AHEAD = 1000
"""Pieces of a model that are read before the ones before them were taken."""


class AgentStreamingNode(AgentNode, StreamingNode):
    """Responsible for a step whose `process` streams a model's answer, with the help of two generators.

    Both say the first piece at once and later ones at most each `debounce_by` seconds, together; None or 0: each piece
    by itself. Where the model fails, what it said until then is said before the error is raised.
    """

    @abstractmethod
    def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
        """Yields completion chunks."""

    async def stream_text_deltas(
        self, stream_result: StreamedRunResult[Any, Any], debounce_by: float | None = 0.01
    ) -> AsyncIterator[StreamItem]:
        """New text of `agent.run_stream(…)` as completion chunks; counts its usage."""
        # pydantic-ai's own debounce drops what it holds back when a model fails
        source = stream_result.stream_text(delta=True, debounce_by=None)
        async with Relay[str](partial(_copy, source), _AHEAD) as relay:
            while pieces := await relay.take(debounce_by or 0.0):
                for text in ["".join(pieces)] if debounce_by else pieces:
                    if text:
                        yield self.completion_chunk(text)
        self.count_usage(stream_result.usage)

    async def stream_structured_deltas(
        self, stream_result: StreamedRunResult[Any, Any], debounce_by: float | None = 0.01, *, as_patch: bool = False
    ) -> AsyncIterator[StreamItem]:
        """Structured output of `agent.run_stream(…)` as it grows: snapshots, each replacing the one before.

        With `as_patch` only the first is a snapshot, each later one a JSON Patch of the one before. The last one is the
        validated output, which also is this node's output in the context. Counts its usage.
        """
        said: Any = None
        source = stream_result.stream_response(debounce_by=None)
        async with Relay["ModelResponse"](partial(_copy, source), _AHEAD) as relay:
            while responses := await relay.take(debounce_by or 0.0):
                for response in responses[-1:] if debounce_by else responses:
                    grown = await _partial_output(stream_result, response)
                    if grown and grown != said:
                        yield self._structured_chunk(said, grown, as_patch)
                        said = grown
        output = await stream_result.get_output()
        self.save_output(output)
        self.count_usage(stream_result.usage)
        if (whole := to_jsonable_python(output)) != said:
            yield self._structured_chunk(said, whole, as_patch)

    def _structured_chunk(self, said: Any, grown: Any, as_patch: bool) -> StreamItem:
        return self.completion_chunk(grown if said is None or not as_patch else make_patch(said, grown))


async def _partial_output(stream_result: StreamedRunResult[Any, Any], response: ModelResponse) -> Any:
    """The output so far as JSON, None where there is none yet that could be validated."""
    from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior

    try:
        return to_jsonable_python(await stream_result.validate_response_output(response, allow_partial=True))
    except (ValidationError, ModelRetry, UnexpectedModelBehavior):
        return None


async def _copy(source: AsyncIterator[Any], put: Put[Any]) -> None:
    # Any: they are async generators, which pydantic-ai declares as iterators
    async with aclosing(cast(Any, source)) as items:
        async for item in items:
            await put(item)
