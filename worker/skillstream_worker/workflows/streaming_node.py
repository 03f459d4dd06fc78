"""A step that streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from .context import TaskContext
from .node import Node

StreamItem = dict[str, Any]
"""A chat completion chunk whose `delta.content` is text, a dict (structured content so far) or a list (a JSON Patch)."""


class StreamingNode(Node):
    """Responsible for a step that says its output in pieces: `process` is an async generator of completion chunks.

    Once it ended, what it said is its output in the context, unless it saved another one itself.
    """

    @abstractmethod
    def process(self, task_context: TaskContext) -> AsyncIterator[StreamItem]:
        """Yields completion chunks."""

    def completion_chunk(self, content: str | dict[str, Any] | list[dict[str, Any]]) -> StreamItem:
        """Content in the shape of an OpenAI chat completion chunk."""
        choice = {"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": None}
        return {"object": "chat.completion.chunk", "model": "default", "choices": [choice]}


def content_of(item: StreamItem) -> Any:
    """The content of a completion chunk, None where it has none; an item of another shape is content itself."""
    if "choices" not in item:
        return item
    choices = item["choices"]
    return choices[0]["delta"].get("content") if choices else None
