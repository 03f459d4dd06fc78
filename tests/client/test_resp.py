"""Our parser and hiredis agree on whatever comes, however it is cut; packing agrees byte for byte."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream.resp import PUSH_TYPES, Argument, PythonParser, ReplyError, new_parser, pack_in_python

lines = st.binary(max_size=20).filter(lambda line: b"\r" not in line and b"\n" not in line)
blobs = st.binary(max_size=50)


def blob(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


leaves = st.one_of(
    lines.map(lambda line: b"+%b\r\n" % line),
    st.text("abc ABCé€", max_size=20).map(lambda text: b"-ERR %b\r\n" % text.encode()),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: b":%d\r\n" % number),
    blobs.map(blob),
    st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n"]),
    st.floats(allow_nan=False).map(lambda number: b",%b\r\n" % repr(number).encode()),
    st.integers().map(lambda number: b"(%d\r\n" % number),
    blobs.map(lambda data: b"=%d\r\ntxt:%b\r\n" % (len(data) + 4, data)),
)


def aggregates(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    items = st.lists(inner | st.just(b"#f\r\n"), max_size=4)
    pairs = st.lists(st.tuples(blobs.map(blob), inner), max_size=4, unique_by=lambda pair: pair[0])
    return st.one_of(
        items.map(lambda parts: b"*%d\r\n%b" % (len(parts), b"".join(parts))),
        items.map(lambda parts: b"~%d\r\n%b" % (len(parts), b"".join(parts))),
        pairs.map(lambda parts: b"%%%d\r\n%b" % (len(parts), b"".join(key + value for key, value in parts))),
    )


replies = st.recursive(leaves, aggregates, max_leaves=10)
pushes = st.lists(leaves, min_size=1, max_size=3).map(lambda parts: b">%d\r\n%b" % (len(parts), b"".join(parts)))
frames = st.lists(replies | pushes, min_size=1, max_size=6)


def read_all(parser: Any, pieces: list[bytes]) -> list[Any]:
    values = []
    for piece in pieces:
        parser.feed(piece)
        while (value := parser.gets()) is not False:
            values.append(value)
    return values


def plain(value: Any) -> Any:
    """A value that compares by content: errors and pushes as tagged tuples, numbers with their types."""
    if isinstance(value, ReplyError):
        return ("error", str(value), value.kind)
    if isinstance(value, list):
        items = [plain(item) for item in value]
        return ("push", items) if isinstance(value, PUSH_TYPES) else items
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return (type(value).__name__, value)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(edges)]


def hiredis_parser() -> Any:
    return hiredis.Reader(replyError=ReplyError, notEnoughData=False)


@given(frames, st.lists(st.integers(0, 10_000), max_size=12))
def test_our_parser_reads_what_hiredis_reads(parts: list[bytes], places: list[int]) -> None:
    pieces = cut(b"".join(parts), places)
    ours, theirs = read_all(PythonParser(), pieces), read_all(hiredis_parser(), pieces)
    assert [plain(value) for value in ours] == [plain(value) for value in theirs]
    assert len(ours) == len(parts)


@given(frames)
def test_an_incomplete_reply_is_no_reply(parts: list[bytes]) -> None:
    data = b"".join(parts)
    parser = PythonParser()
    values = read_all(parser, [data[:-1]])
    assert len(values) == len(parts) - 1
    assert len(read_all(parser, [data[-1:]])) == 1


def test_the_parser_of_a_connection_is_hiredis_where_it_is_installed() -> None:
    assert isinstance(new_parser(), hiredis.Reader)


@given(
    st.lists(
        st.binary(max_size=50) | st.text(st.characters(codec="utf-8"), max_size=50) | st.integers() | st.floats(), min_size=1
    )
)
def test_commands_are_packed_as_hiredis_packs_them(arguments: list[Argument]) -> None:
    assert pack_in_python(arguments) == hiredis.pack_command(tuple(arguments))  # type: ignore[arg-type]


GARBAGE = [
    b"xfoo\r\n", b"\r\n", b":abc\r\n", b":1_0\r\n", b": 1\r\n", b":\r\n", b"$-5\r\n", b"$x\r\n", b"*-7\r\n", b"*x\r\n", b"#x\r\n",
    b"_x\r\n", b",1_0\r\n", b",x\r\n", b"=3\r\nabc\r\n", b"(12a\r\n", b"*1\r\nxfoo\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n",
]  # fmt: skip


@pytest.mark.parametrize("data", GARBAGE)
@pytest.mark.parametrize("make", [PythonParser, hiredis_parser])
def test_garbage_raises(make: Any, data: bytes) -> None:
    parser = make()
    parser.feed(data)
    with pytest.raises((ValueError, hiredis.ProtocolError)):
        parser.gets()


@given(st.binary(max_size=60))
def test_random_bytes_raise_or_wait_or_read(data: bytes) -> None:
    parser = PythonParser()
    try:
        read_all(parser, [data])
    except (ValueError, TypeError):
        pass


def test_the_kind_of_an_error_is_its_first_word() -> None:
    assert ReplyError("OOM command not allowed when used memory > 'maxmemory'.").kind == "OOM"
