"""What items of a workflow amount to for the reader of a task."""

from __future__ import annotations

from typing import Any

import pytest

from skillstream_schemas.workflow_errors import InvalidNodeOutput
from skillstream_worker import Response
from skillstream_worker.workflows import StreamItem, apply_patch
from skillstream_worker.workflows.unwrapping import Unwrapping

from .nodes import S1


def chunk(content: Any, node: str | None = None) -> StreamItem:
    """A completion chunk."""
    item = S1().completion_chunk(content)
    return item if node is None else {**item, "node": node}


def end(node: str) -> StreamItem:
    """The end of a labelled node."""
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "node": node}


def said(*items: StreamItem) -> list[Any]:
    """What is said for the items and behind them."""
    unwrapping = Unwrapping()
    found = [piece for item in items for piece in unwrapping.take(item)]
    return [*found, *unwrapping.rest()]


def turn(node: str) -> Response:
    return Response(text=node, status="working", metadata={"node": node})


def ahead(node: str, text: str) -> Response:
    return Response(text=text, status="working", metadata={"node": node, "ahead": True})


def test_text_and_snapshots_are_unwrapped() -> None:
    assert said(chunk("a"), chunk({"n": 1}), chunk("b"), chunk("")) == ["a", {"n": 1}, "b"]


def test_an_item_of_another_shape_is_structured_content() -> None:
    assert said({"type": "sources", "node": "x"}) == [{"type": "sources", "node": "x"}]


def test_a_chunk_without_choices_says_nothing() -> None:
    assert said({"object": "chat.completion.chunk", "choices": []}) == []


def test_patches_are_followed_by_the_whole() -> None:
    patch = [{"op": "add", "path": "/m", "value": 2}]
    assert said(chunk({"n": 1}), chunk(patch)) == [{"n": 1}, patch, {"n": 1, "m": 2}]


def test_a_snapshot_behind_patches_is_the_whole() -> None:
    assert said(chunk({"n": 1}), chunk([{"op": "remove", "path": "/n"}]), chunk({"m": 2}))[-1] == {"m": 2}


@pytest.mark.parametrize("patch", [[{"op": "remove", "path": "/no"}], [{"op": "what"}], [{"path": "/n"}], [{}]])
def test_a_patch_that_does_not_fit_is_an_error_of_its_node(patch: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidNodeOutput, match="does not fit"):
        said(chunk({"n": 1}), chunk(patch))


def test_structured_content_of_nodes_at_once_stands_under_their_names() -> None:
    steps = said(
        chunk({"n": 1}, "A"), chunk({"m": 1}, "B"), chunk([{"op": "replace", "path": "/n", "value": 2}], "A"), end("A"),
        chunk([{"op": "move", "from": "/m", "path": "/k"}], "B"), end("B"),
    )  # fmt: skip
    assert steps[:2] == [{"A": {"n": 1}}, {"A": {"n": 1}, "B": {"m": 1}}]
    assert steps[2:4] == [[{"op": "replace", "path": "/A/n", "value": 2}], [{"op": "move", "from": "/B/m", "path": "/B/k"}]]
    assert steps[4] == {"A": {"n": 2}, "B": {"k": 1}} == apply_patch(apply_patch(steps[1], steps[2]), steps[3])


def test_structured_content_behind_a_section_replaces_it() -> None:
    assert said(chunk({"n": 1}, "A"), end("A"), chunk({"m": 1}))[-1] == {"m": 1}


def test_text_of_nodes_at_once_comes_in_turns_and_is_shown_ahead() -> None:
    assert said(chunk("a1", "A"), chunk("b1", "B"), chunk("a2", "A"), end("A"), chunk("b2", "B"), end("B"), chunk("z")) == [
        turn("A"), "a1", ahead("B", "b1"), "a2", turn("B"), "\n\n", "b1", "b2", "z",
    ]  # fmt: skip


def test_a_node_that_ended_before_its_turn() -> None:
    items = [chunk("a1", "A"), chunk("b1", "B"), end("B"), chunk("c1", "C"), end("A"), chunk("c2", "C"), end("C")]
    assert said(*items) == [
        turn("A"), "a1", ahead("B", "b1"), ahead("C", "c1"), turn("B"), "\n\n", "b1", turn("C"), "\n\n", "c1", "c2",
    ]  # fmt: skip


def test_what_waits_is_said_where_the_run_breaks_off() -> None:
    assert said(chunk("a1", "A"), chunk("b1", "B"), chunk("c1", "C"))[4:] == [
        turn("B"), "\n\n", "b1", turn("C"), "\n\n", "c1",
    ]  # fmt: skip


def test_sections_do_not_reach_into_one_another() -> None:
    section = [chunk("a", "A"), end("A")]
    assert said(*section, chunk("mid"), *section) == [turn("A"), "a", "mid", turn("A"), "a"]


def test_a_piece_is_shown_ahead_as_far_as_a_status_may_reach() -> None:
    long = "ä" * 40_000
    pieces = said(chunk("a", "A"), chunk(long, "B"), end("A"), end("B"))
    assert len(pieces[2].text) == 10_000
    assert pieces[-1] == long
