"""The short way of reading an entry says what the models of the contract say, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream_router.plain import plain_final, plain_request
from skillstream_router.projection import RawEntry, asked_of, read_final, read_request

Fields = dict[bytes, bytes]

REQUEST: Fields = {
    b"type": b"status", b"state": b"submitted", b"v": b"1", b"at": b"1000", b"agent": b"poet", b"skill": b"rhyme",
    b"message": "schön".encode(), b"max_attempts": b"3", b"price_micros": b"50000", b"on_retry": b"restart",
    b"context_id": b"chat", b"payer": b"acme", b"deadline": b"5000", b"follows": b"t0", b"parent": b"t1",
    b"sender_id": b"web", b"traceparent": b"00-1-2-01",
}  # fmt: skip
FINAL: Fields = {
    b"type": b"final", b"state": b"failed", b"text": "schön".encode(), b"metadata": b'{"agentId":"poet"}', b"chunks": b"2",
    b"at": b"2000", b"error": b"timeout", b"reason": b"slow", b"usage": b'{"tokens":3}',
}  # fmt: skip

numbers = st.sampled_from(
    [
        b"0",
        b"1",
        b"-1",
        b"007",
        b"1_0",
        b" 1",
        b"1.0",
        b"101",
        b"1001",
        b"9" * 15,
        b"1" + b"0" * 15,
        b"9" * 30,
        b"253402300799999",
        b"253402300800000",
    ]
)
texts = st.sampled_from([b"", b"a", b"a b", b"x" * 128, b"x" * 129, b"x" * 257, b"\xff", "é".encode(), b"a\0b"])
words = st.sampled_from([b"completed", b"working", b"input-required", b"resume", b"2", b"status", b"final", b"chunk"])
nested = st.sampled_from([b"{}", b"[]", b"{", b'{"a":NaN}', b'{"a":1e999}', b'{"a":"\\ud800"}', b'{"a":[1,{"b":null}]}', b"1"])
nested |= st.sampled_from([b"[" * 250 + b"]" * 250, b'{"a":"' + b"x" * 600 + b'"}', b'{"a":' + b"9" * 5000 + b"}"])
values = numbers | texts | words | nested | st.binary(max_size=12)
others = st.sampled_from([b"data", b"history", b"metadata", b"admission", b"id", b"surprise", b"usage", b"chunks", b"progress"])


def changed(sound: Fields) -> st.SearchStrategy[Fields]:
    """Fields of which some are missing, spoiled, or too many."""
    kept = st.sets(st.sampled_from(sorted(sound)), min_size=len(sound) - 3).map(lambda names: {n: sound[n] for n in names})
    spoiled = st.dictionaries(st.sampled_from(sorted(sound)) | others, values, max_size=2)
    return st.tuples(st.just(sound) | kept, spoiled).map(lambda parts: parts[0] | parts[1])


ids = st.sampled_from(["0-1", "1-2", "0-2", "3-7", "1" * 16 + "-1", "1", "01-1"])


def flat(fields: Fields) -> list[bytes]:
    return [part for field in fields.items() for part in field]


@pytest.mark.guarantee("G13")
@given(ids, changed(REQUEST))
def test_requests(entry_id: str, fields: Fields) -> None:
    plain = plain_request(entry_id, flat(fields))
    if plain is not None:
        request = read_request(RawEntry(entry_id, flat(fields)))
        assert plain == (asked_of(request, int(fields[b"at"])), request.message)


@pytest.mark.guarantee("G13", "G16")
@given(ids, changed(FINAL))
def test_finals(entry_id: str, fields: Fields) -> None:
    plain = plain_final(entry_id, flat(fields))
    if plain is not None:
        assert (*plain, None) == read_final(RawEntry(entry_id, flat(fields)))


@pytest.mark.parametrize(
    ("read", "entry_id", "sound", "needed"),
    [
        (plain_request, "0-1", REQUEST, {b"type", b"state", b"v", b"at", b"agent", b"skill", b"message"}),
        (plain_final, "1-2", FINAL, {b"type", b"state", b"at", b"text", b"metadata", b"chunks"}),
    ],
    ids=["request", "final"],
)
def test_what_our_own_code_writes_goes_the_short_way(
    read: Callable[[str, Sequence[bytes]], object], entry_id: str, sound: Fields, needed: set[bytes]
) -> None:
    assert read(entry_id, flat(sound)) is not None
    without = {name: {other: sound[other] for other in sound if other != name} for name in sound}
    assert {name for name, fields in without.items() if read(entry_id, flat(fields)) is None} == needed


@pytest.mark.parametrize(("read", "entry_id", "sound"), [(plain_request, "0-1", REQUEST), (plain_final, "1-2", FINAL)])
def test_any_order_of_names_is_read_alike_and_none_twice(
    read: Callable[[str, Sequence[bytes]], object], entry_id: str, sound: Fields
) -> None:
    backwards = dict(reversed(sound.items()))
    assert read(entry_id, flat(backwards)) == read(entry_id, flat(sound)) is not None
    assert read(entry_id, [*flat(sound), b"at", sound[b"at"]]) is None
