"""Requests are read alike whether one of their kind came before or not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillstream import request_reader
from skillstream.broker import flat
from skillstream.request_reader import fields_of, request_of
from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.event import StatusEvent, request_from_fields
from skillstream_schemas.ids import SUBMISSION
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.state import TaskState
from tests.schemas.strategies import names, numbers, requests, texts

REQUEST = TaskRequest(agent="demo", skill="echo", message="hello", payer="acme", context_id="talk-1")


def entry(request: TaskRequest, at: int = 1) -> list[bytes]:
    """The fields of a submission as they come from the broker."""
    event = StatusEvent(id=SUBMISSION, at=at, state=TaskState.SUBMITTED, request=request)
    return [part.encode() for part in flat(event.to_fields())]


def outcome(fields: Sequence[bytes], *, as_new: bool) -> TaskRequest | str:
    """The request, or what is wrong with it."""
    if as_new:
        request_reader._kinds.clear()
    try:
        return request_of(fields)
    except MalformedEntry as error:
        return error.message


@given(requests, texts, names, numbers)
def test_a_request_is_read_as_the_models_read_it(request_: TaskRequest, message: str, context_id: str, at: int) -> None:
    context = {} if request_.context_id is None else {"context_id": context_id}
    like_it = request_.model_copy(update={"message": message, **context})
    for request in (request_, like_it, request_):
        fields = entry(request, at)
        assert request_of(fields) == request_from_fields(fields_of(fields)) == request


@given(st.integers(0, 24), st.binary(max_size=8) | st.sampled_from([b"at", b"message", b"context_id", b"data", b"{}", b"payer"]))
@example(7, b"\xff")
def test_an_entry_with_a_fault_is_told_as_the_models_tell_it_also_behind_good_ones(place: int, value: bytes) -> None:
    fields = entry(REQUEST.model_copy(update={"sender_id": "someone"}))
    broken = [*fields[:place], value, *fields[place + 1 :]]
    try:
        told: TaskRequest | str = request_from_fields(fields_of(broken))
    except MalformedEntry as error:
        told = f"entry 0-1: {error.message}"
    assert outcome(broken, as_new=True) == told
    assert request_of(fields).sender_id == "someone"
    assert outcome(broken, as_new=False) == told


@pytest.mark.parametrize("name", [b"message", b"context_id", b"payer"])
def test_a_field_that_stands_twice_counts_as_it_does_in_the_models(name: bytes) -> None:
    fields = [*entry(REQUEST), name, b"other"]
    for _ in range(2):
        assert request_of(fields) == request_from_fields(fields_of(fields))


def test_requests_share_nothing_that_a_skill_can_change() -> None:
    request = REQUEST.model_copy(update={"metadata": {"list": [1]}, "data": {"list": [1]}})
    first, second = request_of(entry(request)), request_of(entry(request))
    assert isinstance(first.data, dict)
    assert first.metadata is not None
    first.data["list"] = first.metadata["list"] = [2]
    assert second == request


def test_what_is_kept_stays_bounded() -> None:
    request_reader._kinds.clear()
    for number in range(request_reader._KINDS + 10):
        request_of(entry(REQUEST.model_copy(update={"payer": f"payer-{number}"})))
    long = {"skill": "x" * 256, "payer": "y" * 256, "sender_id": "z" * 256, "admission": "a" * 256}
    assert request_of(entry(REQUEST.model_copy(update=long))).admission == "a" * 256
    assert 0 < len(request_reader._kinds) <= request_reader._KINDS
    assert all(sum(map(len, kind)) <= request_reader._KIND_BYTES for kind in request_reader._kinds)
