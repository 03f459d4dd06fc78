"""How deep and how large a value may be: the same for those who write and those who read."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given

from skillstream_schemas.errors import InvalidRequest, MalformedEntry, MalformedJob, SkillstreamError
from skillstream_schemas.event import event_from_fields
from skillstream_schemas.ids import EventId
from skillstream_schemas.job import MAX_JOB_NODES, read_job, unpack
from skillstream_schemas.json_text import MAX_JSON_DEPTH, MAX_JSON_NODES
from skillstream_schemas.limits import MAX_FIELDS, Limits
from skillstream_schemas.request import TaskRequest, compact_json, read_json
from tests.schemas.strategies import requests, texts

from .decoding import job_of

pytestmark = pytest.mark.guarantee("G13")


def nested(depth: int) -> Any:
    value: Any = "]" * 300
    for _ in range(depth):
        value = [value]
    return value


def test_what_may_be_written_may_be_read() -> None:
    deep = nested(MAX_JSON_DEPTH)
    assert read_json("data", compact_json(deep)) == deep
    mixed: Any = None
    for _ in range(MAX_JSON_DEPTH // 2):
        mixed = {"[{": [mixed]}
    assert read_json("data", compact_json(mixed)) == mixed
    wide: list[Any] = [[]] * (MAX_JSON_NODES - 1)
    assert len(read_json("data", compact_json(wide))) == len(wide)
    request = TaskRequest.build({"agent": "a", "skill": "s", "message": "m", "data": nested(MAX_JSON_DEPTH - 1)}, Limits())
    assert TaskRequest.from_fields(request.to_fields()) == request


@pytest.mark.parametrize("value", [nested(MAX_JSON_DEPTH + 1), [[]] * MAX_JSON_NODES, {"a": {"b": nested(MAX_JSON_DEPTH)}}])
def test_what_nobody_could_read_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match=r"limit|levels"):
        compact_json(value)
    with pytest.raises(MalformedEntry):
        read_json("data", json.dumps(value))
    with pytest.raises(InvalidRequest):
        TaskRequest.build({"agent": "a", "skill": "s", "message": "m", "data": value}, Limits())


@pytest.mark.parametrize("count", [MAX_FIELDS + 1, 5000])
def test_too_many_fields_are_counted_before_they_are_read(count: int) -> None:
    surplus = {f"f{number}": "x" for number in range(count)}
    for decode in (
        lambda: event_from_fields(EventId(1, 2), surplus),
        lambda: event_from_fields(EventId(0, 1), surplus),
        lambda: TaskRequest.from_fields(surplus),
        lambda: TaskRequest.build(surplus, Limits()),
    ):
        with pytest.raises(SkillstreamError, match=f"{count} fields, the limit is {MAX_FIELDS}"):
            decode()


@pytest.mark.parametrize("value", [[b"x"], {"a": [b"x"]}, msgpack.Timestamp(1), msgpack.ExtType(5, b"x"), nested(MAX_JSON_DEPTH)])
def test_a_request_in_msgpack_holds_what_json_has(value: Any) -> None:
    with pytest.raises(MalformedJob, match=r"JSON|levels"):
        read_job(job_of(msgpack.packb(value)))


def test_jobs_of_plain_functions_may_hold_bytes() -> None:
    assert unpack(msgpack.packb([b"x"])) == [b"x"]


def test_the_number_of_nodes_in_a_job_is_bounded() -> None:
    with pytest.raises(MalformedJob, match="arrays and maps"):
        unpack(msgpack.packb([[]] * MAX_JOB_NODES))


@given(requests)
def test_no_real_request_is_refused(request: TaskRequest) -> None:
    assert TaskRequest.from_fields(request.to_fields()) == request


@given(texts)
def test_texts_full_of_brackets_are_no_depth(text: str) -> None:
    value = {"text": text + '[{"\\' * 100}
    assert read_json("data", compact_json(value)) == value
