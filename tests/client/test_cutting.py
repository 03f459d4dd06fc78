"""Cut pieces joined are the text, fit their entries, and never split what a reader sees as one character."""

from __future__ import annotations

import time
from itertools import accumulate

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from skillstream.cutting import Boundary, last_boundary, split
from skillstream_schemas.limits import MIB, utf8_length

GRAPHEMES = [
    "a", "Z", "0", " ", "\t", "\n", "\r\n", ".", "!", "…", "#", "`", "é", "e\u0301", "o\u0308\u0323", "ñ",
    "汉", "字", "。", "」", "각", "가", "한", "\u1112\u1161\u11ab", "👍", "👍🏽", "👩\u200d👩\u200d👧\u200d👦",
    "🏴\u200d☠\ufe0f", "🇩🇪", "🇯🇵", "❤\ufe0f", "1\ufe0f\u20e3", "ก็", "நி",
]  # fmt: skip
WHOLES = ["\n\n", "\r\n\r\n", ". ", "! ", "。", "```\n", "~~~\n", "# head\n", "one two ", "- item\n", "“said.” "]

graphemes = st.lists(st.sampled_from(GRAPHEMES + WHOLES), max_size=120).map("".join)
any_text = st.text(st.characters(codec="utf-8"), max_size=200)
texts = graphemes | any_text
boundaries = st.sampled_from(Boundary)


def grapheme_ends(text: str) -> set[int]:
    return {0, *accumulate(map(len, regex.findall(r"\X", text)))}


@given(texts, st.integers(4, 80), boundaries)
def test_pieces_joined_are_the_text_and_each_fits(text: str, limit_bytes: int, boundary: Boundary) -> None:
    pieces = split(text, limit_bytes, boundary)
    assert "".join(pieces) == text
    assert all(utf8_length(piece) <= limit_bytes for piece in pieces)
    assert all(pieces) or text == ""


@given(graphemes, st.integers(32, 80), boundaries)
def test_no_grapheme_is_cut(text: str, limit_bytes: int, boundary: Boundary) -> None:
    ends = grapheme_ends(text)
    for end in accumulate(map(len, split(text, limit_bytes, boundary))):
        assert end in ends


@pytest.mark.parametrize("grapheme", GRAPHEMES)
@pytest.mark.parametrize("offset", range(3))
def test_no_grapheme_is_cut_at_the_size_of_a_real_entry(grapheme: str, offset: int) -> None:
    """A long text is looked at in windows; the end of a window is no place to cut."""
    text = "x" * offset + grapheme * (300_000 // utf8_length(grapheme))
    pieces = split(text, 64 * 1024)
    assert "".join(pieces) == text
    assert all(utf8_length(piece) <= 64 * 1024 for piece in pieces)
    assert all((end - offset) % len(grapheme) == 0 for end in accumulate(map(len, pieces)))


@pytest.mark.parametrize(
    "huge",
    ["a" + "\u0301" * 5000, "👩" + "\u200d👩" * 3000, "e" + "\u0308" * 100_000],
    ids=["marks", "joined emoji", "longer than what is looked at"],
)
def test_a_grapheme_over_the_limit_is_cut_between_code_points(huge: str) -> None:
    pieces = split("before " + huge + " after", 1000)
    assert "".join(pieces) == "before " + huge + " after"
    assert all(utf8_length(piece) <= 1000 for piece in pieces)


@pytest.mark.parametrize(
    ("boundary", "text", "pieces"),
    [
        (Boundary.NONE, "one two. Three four five", ["one two. ", "Three four ", "five"]),
        (Boundary.WORD, "alpha beta gamma", ["alpha beta ", "gamma"]),
        (Boundary.PARAGRAPH, "a b\n\nc d e f g", ["a b\n\n", "c d e f g"]),
        (Boundary.MARKDOWN, "# one\n\n# two\n\n", ["# one\n\n", "# two\n\n"]),
    ],
)
def test_text_is_cut_where_it_reads_well(boundary: Boundary, text: str, pieces: list[str]) -> None:
    assert split(text, 12, boundary) == pieces


def test_what_fits_is_one_piece() -> None:
    assert split("as long as the limit", 20) == ["as long as the limit"]
    assert split("", 20) == [""]


@pytest.mark.parametrize(
    "unit", ["lorem ipsum dolor sit amet. ", "a", "汉字漢字仮名。", "👩\u200d👩\u200d👧\u200d👦", "e\u0301", "x" * 70 + "\n"]
)
@pytest.mark.parametrize("boundary", [Boundary.NONE, Boundary.MARKDOWN])
def test_the_largest_output_in_one_piece_does_not_hold_the_worker(unit: str, boundary: Boundary) -> None:
    """A lease is 15 s; the bound here is for a slow machine."""
    text = unit * (16 * MIB // utf8_length(unit))
    started_s = time.process_time()
    pieces = split(text, 64 * 1024 - 64, boundary)
    assert time.process_time() - started_s < 5
    assert "".join(pieces) == text
    assert len(pieces) < 300


@given(texts, boundaries)
def test_a_boundary_lies_inside_the_text_and_cuts_no_grapheme(text: str, boundary: Boundary) -> None:
    end = last_boundary(text, boundary)
    assert 0 <= end <= len(text)
    assert not (text[:end].endswith("\r") and text[end:].startswith("\n"))
    if boundary is not Boundary.NONE:
        assert end in grapheme_ends(text)


@given(texts, st.sampled_from([boundary for boundary in Boundary if boundary is not Boundary.NONE]))
def test_a_boundary_never_stands_behind_a_return_whose_newline_may_follow(text: str, boundary: Boundary) -> None:
    end = last_boundary(text + "\r", boundary)
    assert end <= len(text)


JOINING = ["\u0301", "\u200d", "\u200c", "\ufe0f", "🏽", "\uff9e", "\U000e0067", "ำ"]


@pytest.mark.parametrize("joining", JOINING)
@pytest.mark.parametrize(
    ("boundary", "before"), [(Boundary.WORD, "one "), (Boundary.SENTENCE, "One. "), (Boundary.SENTENCE, "一。")]
)
def test_no_boundary_before_what_joins_the_character_before_it(boundary: Boundary, before: str, joining: str) -> None:
    assert last_boundary(before + joining + "x", boundary) == 0
    assert last_boundary(before + "x", boundary) == len(before)


@pytest.mark.parametrize(
    ("boundary", "text", "kept"),
    [
        (Boundary.NONE, "any", "any"),
        (Boundary.WORD, "one two thr", "one two "),
        (Boundary.WORD, "one", ""),
        (Boundary.SENTENCE, "First. “Second!” Third", "First. “Second!” "),
        (Boundary.SENTENCE, "version 1.5", ""),
        (Boundary.SENTENCE, "第一。「第二。」第", "第一。「第二。」"),
        (Boundary.SENTENCE, "a line\nand", "a line\n"),
        (Boundary.PARAGRAPH, "one\ntwo\n\nthree\n", "one\ntwo\n\n"),
        (Boundary.PARAGRAPH, "one\r\n\r\ntwo", "one\r\n\r\n"),
        (Boundary.PARAGRAPH, "one\n \t\ntwo", "one\n \t\n"),
        (Boundary.MARKDOWN, "text\n\nmore\n", "text\n\n"),
        (Boundary.MARKDOWN, "# head\ntext", "# head\n"),
        (Boundary.MARKDOWN, "```py\n\ncode\n", ""),
        (Boundary.MARKDOWN, "```py\n\ncode\n```\nrest", "```py\n\ncode\n```\n"),
        (Boundary.MARKDOWN, "~~~\n```\n\n", ""),
        (Boundary.MARKDOWN, "unfinished", ""),
    ],
)
def test_where_boundaries_are(boundary: Boundary, text: str, kept: str) -> None:
    assert text[: last_boundary(text, boundary)] == kept
