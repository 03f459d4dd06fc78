"""Merged text: nothing lost, nothing doubled, no piece over an entry, whatever the rules and the rhythm."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream.cutting import Boundary
from skillstream_schemas.limits import utf8_length
from skillstream_worker.chunking import Chunking
from skillstream_worker.merging import TextBuffer

pieces = st.text(st.sampled_from("ab 汉。.!\n\r#`👍\u0301\u200d"), min_size=1, max_size=30)
chunkings = st.builds(Chunking, max_chars=st.integers(0, 40), boundary=st.sampled_from(Boundary))
steps = st.lists(pieces | st.just(None), max_size=40)
"""A yielded piece, or None for a moment at which the pipeline writes."""


def filled(chunking: Chunking, *texts: str, entry_bytes: int = 1000) -> TextBuffer:
    buffer = TextBuffer(chunking, entry_bytes)
    for text in texts:
        buffer.add(text, utf8_length(text))
    return buffer


@given(chunkings, st.integers(8, 60), steps)
def test_what_is_taken_is_what_was_added(chunking: Chunking, entry_bytes: int, steps: Sequence[str | None]) -> None:
    buffer = TextBuffer(chunking, entry_bytes)
    added, taken = "", list[str]()
    for step in steps:
        if step is None:
            taken += buffer.take(everything=False)
        else:
            buffer.add(step, utf8_length(step))
            added += step
        waiting = added[len("".join(taken)) :]
        assert (buffer.chars, buffer.size_bytes) == (len(waiting), utf8_length(waiting))
    taken += buffer.take(everything=True)
    assert "".join(taken) == added
    assert all(0 < utf8_length(piece) <= entry_bytes for piece in taken)
    assert (buffer.chars, buffer.size_bytes) == (0, 0)
    assert buffer.take(everything=True) == []


@given(st.builds(Chunking, max_chars=st.integers(1, 40), boundary=st.sampled_from(Boundary)), steps)
def test_nothing_waits_beyond_the_number_of_characters(chunking: Chunking, steps: Sequence[str | None]) -> None:
    buffer = TextBuffer(chunking, 1000)
    for step in steps:
        if step is not None:
            buffer.add(step, utf8_length(step))
        while buffer.is_ripe:
            assert buffer.take(everything=False), buffer
        assert buffer.chars < chunking.max_chars


@given(st.lists(pieces, max_size=20), st.integers(8, 60))
def test_merging_off_keeps_each_yield_apart(texts: list[str], entry_bytes: int) -> None:
    taken = filled(Chunking.off(), *texts, entry_bytes=entry_bytes).take(everything=False)
    ends = [0]
    for piece in taken:
        ends.append(ends[-1] + len(piece))
    place = 0
    for text in texts:
        place += len(text)
        assert place in ends
    assert len(taken) == len(texts) or any(utf8_length(text) > entry_bytes for text in texts)


@pytest.mark.parametrize(
    ("boundary", "now", "later"),
    [
        (Boundary.NONE, "One. Two thr", ""),
        (Boundary.WORD, "One. Two ", "thr"),
        (Boundary.SENTENCE, "One. ", "Two thr"),
        (Boundary.PARAGRAPH, "", "One. Two thr"),
    ],
)
def test_what_stands_behind_the_last_boundary_waits(boundary: Boundary, now: str, later: str) -> None:
    buffer = filled(Chunking(boundary=boundary), "One. ", "Two ", "thr")
    assert "".join(buffer.take(everything=False)) == now
    assert "".join(buffer.take(everything=True)) == later


def test_text_without_its_boundary_is_cut_between_words_at_last() -> None:
    buffer = filled(Chunking(max_chars=10, boundary="paragraph"), "no paragraph he")
    assert buffer.take(everything=False) == ["no paragraph "]
    assert buffer.take(everything=False) == []
    assert buffer.take(everything=True) == ["he"]


def test_an_entry_full_of_bytes_is_ripe_before_its_characters_are() -> None:
    assert not filled(Chunking(max_chars=1000), "汉" * 33, entry_bytes=100).is_ripe
    assert filled(Chunking(max_chars=1000), "汉" * 34, entry_bytes=100).is_ripe


@pytest.mark.parametrize("values", [{"max_delay": -0.1}, {"max_delay": 61}, {"max_chars": -1}, {"boundary": "letter"}])
def test_rules_out_of_range_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"is not|is negative"):
        Chunking(**values)  # type: ignore[arg-type]
