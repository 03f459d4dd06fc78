"""From what a workflow streams to what a skill yields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skillstream_schemas.state import TaskState
from skillstream_worker.response import Response

from .patches import Patch, apply_patch
from .streaming_node import StreamItem, content_of

_SHOWN_CHARS = 10_000
"""Characters of a piece that are shown ahead of its turn: a status has to fit into one entry."""
_BETWEEN = "\n\n"

Said = str | Response | dict[str, Any] | Patch
"""Text, a status, a snapshot of all structured content, or a patch of it."""


class Unwrapping:
    """Responsible for unwrapping completion chunks, and for the order of what nodes say at the same time.

    Structured content of labelled nodes stands under their names in one value. Of text, one node has the turn: a
    status with `{"node": …}` tells whose text follows. The text of the others is shown in statuses with
    `{"node": …, "ahead": true}` meanwhile, and comes as text, behind an empty line, when the turn is theirs.
    """

    def __init__(self) -> None:
        self.structured: Any = None
        self._is_patched = False
        self._sections: dict[str, Any] = {}
        self._turn: str | None = None
        self._waiting: dict[str, list[str]] = {}
        self._ended: set[str] = set()
        self._has_spoken = False  # a labelled node, in this section

    def take(self, item: StreamItem) -> Iterator[Said]:
        """What an item amounts to; raises InvalidNodeOutput for a patch that does not fit."""
        content = content_of(item)
        node: str | None = item.get("node") if content is not item else None
        if isinstance(content, dict):
            yield self._snapshot(node, content)
        elif isinstance(content, list):
            yield self._patch(node, content)
        elif node is None:
            yield from self._end_section()
            if content:
                yield content
        elif content:
            yield from self._text(node, content)
        elif item["choices"] and item["choices"][0].get("finish_reason"):
            self._ended.add(node)
            if node == self._turn:
                yield from self._next_turn()

    def rest(self) -> Iterator[Said]:
        """What was held back, and the whole structured content where it was patched."""
        yield from self._end_section()
        if self._is_patched and isinstance(self.structured, dict):
            yield self.structured

    def _snapshot(self, node: str | None, content: dict[str, Any]) -> dict[str, Any]:
        self._sections = {} if node is None else {**self._sections, node: content}
        self.structured, self._is_patched = self._sections or content, False
        return self.structured  # type: ignore[no-any-return]

    def _patch(self, node: str | None, patch: Patch) -> Patch:
        if node is not None:
            patch = [{**step, **{at: f"/{node}{step[at]}" for at in ("path", "from") if at in step}} for step in patch]
        self.structured, self._is_patched = apply_patch(self.structured, patch), True
        if node is not None:
            self._sections = self.structured
        return patch

    def _text(self, node: str, text: str) -> Iterator[Said]:
        if node == self._turn:
            yield text
            return
        self._waiting.setdefault(node, []).append(text)
        if self._turn is None:
            yield from self._next_turn()
        else:
            yield _status(text[:_SHOWN_CHARS], {"node": node, "ahead": True})

    def _next_turn(self) -> Iterator[Said]:
        """Gives the turn to the node that waits longest, and on where that has ended already."""
        self._turn = None
        while self._waiting and self._turn is None:
            node = next(iter(self._waiting))
            texts = self._waiting.pop(node)
            yield _status(node, {"node": node})
            if self._has_spoken:
                yield _BETWEEN
            self._has_spoken = True
            yield "".join(texts)
            self._turn = None if node in self._ended else node

    def _end_section(self) -> Iterator[Said]:
        while self._waiting:
            yield from self._next_turn()
        self._turn, self._has_spoken = None, False
        self._ended.clear()


def _status(text: str, metadata: dict[str, Any]) -> Response:
    return Response(text=text, status=TaskState.WORKING.value, metadata=metadata)
