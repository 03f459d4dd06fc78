"""Requests read back what they write, hold their limits, and tell repeats from other orders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream_schemas.errors import InvalidName, InvalidRequest, MalformedEntry, MessageTooLarge
from skillstream_schemas.limits import MIB, Limits, utf8_length
from skillstream_schemas.request import MAX_DEADLINE_MS, OnRetry, TaskRequest

from .strategies import json_values, requests, texts

BASE: dict[str, Any] = {"agent": "researcher", "skill": "research", "message": "quantum"}
LIMITS = Limits()


@given(requests)
def test_a_request_reads_back_what_it_writes(request: TaskRequest) -> None:
    assert TaskRequest.from_fields(request.to_fields()) == request


@given(requests)
def test_absent_fields_are_not_written(request: TaskRequest) -> None:
    written = set(request.to_fields())
    for name in TaskRequest.model_fields:
        assert (name in written) == (getattr(request, name) is not None)


def test_the_card_fields_have_defaults() -> None:
    request = TaskRequest.from_fields(BASE)
    assert (request.max_attempts, request.price_micros, request.on_retry) == (3, 0, OnRetry.RESTART)


@pytest.mark.parametrize("name", BASE)
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(MalformedEntry, match=name):
        TaskRequest.from_fields({key: value for key, value in BASE.items() if key != name})


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(MalformedEntry, match="priority"):
        TaskRequest.from_fields({**BASE, "priority": "1"})


@pytest.mark.parametrize("name", ["metadata", "history", "data"])
def test_a_field_that_is_not_json_is_named(name: str) -> None:
    with pytest.raises(MalformedEntry, match=f"{name}: not JSON"):
        TaskRequest.from_fields({**BASE, name: "{"})


@given(st.dictionaries(st.sampled_from(sorted(TaskRequest.model_fields)) | texts, texts))
@pytest.mark.guarantee("G13")
def test_hostile_fields_only_ever_raise_malformed_entry(fields: dict[str, str]) -> None:
    try:
        TaskRequest.from_fields({**BASE, **fields})
    except MalformedEntry:
        pass


@pytest.mark.parametrize("name", ["agent", "context_id", "follows", "parent"])
@pytest.mark.parametrize("value", ["", "a b", "{a}", "a\n", "x" * 129])
@pytest.mark.guarantee("G13")
def test_names_that_become_keys_are_checked(name: str, value: str) -> None:
    with pytest.raises(InvalidName, match=name):
        TaskRequest.build({**BASE, name: value}, LIMITS)
    with pytest.raises(MalformedEntry, match=name):
        TaskRequest.from_fields({**BASE, name: value})


DEEP: list[Any] = []
for _ in range(400):
    DEEP = [DEEP]
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("skill", ""), ("skill", "x" * 257), ("skill", None), ("message", None), ("message", b"\xff"), ("max_attempts", 0),
        ("price_micros", -1), ("on_retry", "perhaps"), ("deadline", -1), ("deadline", MAX_DEADLINE_MS + 1), ("payer", ""),
        ("metadata", [1]), ("metadata", {"x": object()}), ("metadata", {"x": float("nan")}), ("data", float("inf")),
        ("data", DEEP), ("data", CIRCLE), pytest.param("data", 10**5000, id="data-huge"), ("surprise", 1),
        ("history", [{"role": "god", "text": ""}]),
    ],
)  # fmt: skip
@pytest.mark.guarantee("G13")
def test_what_breaks_the_contract_is_an_invalid_request(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as raised:
        TaskRequest.build({**BASE, name: value}, LIMITS)
    assert name in str(raised.value)
    assert len(str(raised.value)) < 700


@pytest.mark.parametrize("name", ["message", "skill", "payer"])
@pytest.mark.guarantee("G13")
def test_lone_surrogates_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        TaskRequest.build({**BASE, name: "half \ud83d"}, LIMITS)


@pytest.mark.parametrize("place", [{"metadata": {"x": "\ud800"}}, {"data": ["\udfff"]}, {"metadata": {"\ud800": 1}}])
def test_lone_surrogates_are_refused_inside_values(place: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        TaskRequest.build({**BASE, **place}, LIMITS)


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
@pytest.mark.guarantee("G14")
def test_a_message_may_have_a_mebibyte_of_utf8_and_no_more(character: str) -> None:
    size_bytes = len(character.encode())
    fitting = character * (MIB // size_bytes)
    assert TaskRequest.build({**BASE, "message": fitting}, LIMITS).message == fitting
    with pytest.raises(MessageTooLarge, match="message") as raised:
        TaskRequest.build({**BASE, "message": fitting + character}, LIMITS)
    assert raised.value.code == "message_too_large"


@pytest.mark.parametrize(
    "place", [{"metadata": {"x": "é" * 600}}, {"data": "é" * 600}, {"history": [{"role": "user", "text": "é" * 600}]}]
)
def test_what_comes_with_a_message_has_the_same_limit(place: dict[str, Any]) -> None:
    limits = Limits(message_bytes=1000)
    with pytest.raises(MessageTooLarge, match=next(iter(place))):
        TaskRequest.build({**BASE, **place}, limits)


@given(texts)
def test_length_is_counted_in_utf8_bytes(text: str) -> None:
    assert utf8_length(text) == len(text.encode())


def test_length_of_a_lone_surrogate_is_an_error() -> None:
    with pytest.raises(UnicodeEncodeError):
        utf8_length("\ud800")


@given(requests)
def test_a_repeat_is_the_same_order_whatever_card_and_clock_put_in(request: TaskRequest) -> None:
    changed = request.model_copy(
        update={"max_attempts": 7, "price_micros": 5, "on_retry": OnRetry.FAIL, "deadline": 1, "traceparent": "00-x"}
    )
    assert request.same_order(changed)
    assert request.same_order(TaskRequest.from_fields(request.to_fields()))


OTHER: dict[str, Any] = {
    "agent": "other", "skill": "other", "message": "other", "context_id": "c", "follows": "f", "payer": "p", "sender_id": "s",
    "parent": "q", "admission": "a", "metadata": {"x": 1}, "history": (), "data": 1,
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER)
def test_another_order_is_another_request(name: str) -> None:
    assert not TaskRequest(**BASE).same_order(TaskRequest(**{**BASE, name: OTHER[name]}))


@given(json_values)
def test_data_survives_as_json(data: Any) -> None:
    request = TaskRequest(**BASE, data=data)
    assert TaskRequest.from_fields(request.to_fields()).data == data
