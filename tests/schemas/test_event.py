"""Events read back what they write; what is no event is refused, with its place named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.event import ChunkEvent, FinalEvent, HandedBack, StatusEvent, event_from_fields
from skillstream_schemas.ids import SUBMISSION, EventId
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.state import TaskState

from .strategies import events, texts

HERE = EventId(3, 4)
SUBMITTED = {"type": "status", "state": "submitted", "v": "1", "at": "5", "agent": "a", "skill": "s", "message": "m"}
OPENING = {"type": "status", "state": "working", "worker": "w", "claim": "9", "strikes": "1", "at": "5"}
PROGRESS = {"type": "status", "state": "working", "text": "busy", "at": "5"}
HANDED_BACK = {"type": "status", "handed_back": "drain", "at": "5"}
TEXT = {"type": "chunk", "text": "x", "at": "5"}
DATA = {"type": "chunk", "mode": "snapshot", "data": "1", "at": "5"}
FINAL = {"type": "final", "state": "completed", "text": "x", "metadata": "{}", "chunks": "1", "at": "5"}
SHAPES = {
    "submission": (SUBMISSION, SUBMITTED),
    "opening": (EventId(3, 1), OPENING),
    "progress": (HERE, PROGRESS),
    "hand-back": (HERE, HANDED_BACK),
    "text chunk": (HERE, TEXT),
    "data chunk": (HERE, DATA),
    "final": (HERE, FINAL),
}


@given(events)
def test_an_event_reads_back_what_it_writes(event: StatusEvent | ChunkEvent | FinalEvent) -> None:
    assert event_from_fields(event.id, event.to_fields()) == event


@given(events)
def test_fields_are_text_that_redis_can_hold(event: StatusEvent | ChunkEvent | FinalEvent) -> None:
    fields = event.to_fields()
    assert next(iter(fields)) == "type"
    assert "at" in fields
    for name, value in fields.items():
        assert type(value) is str
        assert name.encode().decode() == name
        assert value.encode().decode() == value


@pytest.mark.parametrize("mode", ["snapshot", "delta"])
def test_null_is_data_too(mode: Any) -> None:
    chunk = ChunkEvent(id=HERE, at=1, data=None, mode=mode)
    assert chunk.to_fields()["data"] == "null"
    assert event_from_fields(HERE, chunk.to_fields()) == chunk


def test_nested_values_are_readable_json() -> None:
    event = StatusEvent(id=HERE, at=1, state=TaskState.WORKING, text="läuft", metadata={"ort": "Zürich", "n": [1, None]})
    assert event.to_fields()["metadata"] == '{"ort":"Zürich","n":[1,null]}'


def refused(event_id: EventId, fields: dict[str, str]) -> str:
    with pytest.raises(MalformedEntry) as raised:
        event_from_fields(event_id, fields)
    text = str(raised.value)
    assert text.startswith(f"malformed_entry: entry {event_id}: ")
    assert len(text) < 700
    return text


@pytest.mark.guarantee("G13")
@pytest.mark.parametrize("shape", SHAPES)
def test_an_unknown_field_is_refused_by_name(shape: str) -> None:
    event_id, fields = SHAPES[shape]
    assert event_from_fields(event_id, fields).id == event_id
    assert "surprise" in refused(event_id, {**fields, "surprise": "1"})


SHAPED_BY = [
    ("text chunk", "text"),
    ("data chunk", "mode"),
    ("hand-back", "handed_back"),
    ("opening", "worker"),
    ("progress", "text"),
]
MISSING = [(shape, name) for shape, (_, fields) in SHAPES.items() for name in fields if (shape, name) not in SHAPED_BY]


@pytest.mark.parametrize(("shape", "name"), MISSING)
def test_a_missing_field_is_refused_by_name(shape: str, name: str) -> None:
    event_id, fields = SHAPES[shape]
    text = refused(event_id, {key: value for key, value in fields.items() if key != name})
    if name not in ("type", "state", "v", "text", "data"):
        assert name in text


@pytest.mark.parametrize(("shape", "name"), SHAPED_BY)
def test_without_the_field_that_makes_its_shape_an_entry_has_none(shape: str, name: str) -> None:
    event_id, fields = SHAPES[shape]
    refused(event_id, {key: value for key, value in fields.items() if key != name})


UNREADABLE = [
    ("submission", "at", "yesterday"), ("submission", "max_attempts", "0"), ("submission", "max_attempts", "x"),
    ("submission", "price_micros", "-1"), ("submission", "on_retry", "perhaps"), ("submission", "metadata", "{"),
    ("submission", "metadata", "[]"), ("submission", "history", '[{"role":"god","text":"x"}]'), ("submission", "data", "{]"),
    ("submission", "agent", "a b"), ("submission", "context_id", "{x}"), ("submission", "deadline", "1.5"),
    ("submission", "metadata", '{"x":NaN}'), ("submission", "data", "1e999"), ("submission", "data", '"\\ud800"'),
    ("opening", "claim", "x"), ("opening", "strikes", ""), ("opening", "resume_from", "-1"), ("opening", "at", "-1"),
    ("progress", "progress", "1.01"), ("progress", "progress", "nan"), ("progress", "metadata", "3"),
    ("hand-back", "handed_back", "mood"), ("data chunk", "mode", "patch"), ("data chunk", "data", "'x'"),
    ("final", "chunks", "-1"), ("final", "metadata", "null"), ("final", "usage", "[1]"), ("final", "state", "done"),
    ("final", "data", "Infinity"),
]  # fmt: skip


@pytest.mark.guarantee("G13")
@pytest.mark.parametrize(("shape", "name", "value"), UNREADABLE)
def test_an_unreadable_field_is_refused_by_name(shape: str, name: str, value: str) -> None:
    event_id, fields = SHAPES[shape]
    assert name in refused(event_id, {**fields, name: value})


@pytest.mark.parametrize("version", ["0", "2", "", "1.0", "one"])
def test_another_wire_version_is_refused(version: str) -> None:
    assert "wire version" in refused(SUBMISSION, {**SUBMITTED, "v": version})


@pytest.mark.parametrize("change", [{"type": "chunk"}, {"state": "working"}, {"type": "final"}])
def test_a_stream_begins_with_a_submission(change: dict[str, str]) -> None:
    assert "not a submission" in refused(SUBMISSION, {**SUBMITTED, **change})


def test_a_submission_stands_nowhere_else() -> None:
    refused(EventId(1, 1), SUBMITTED)


@pytest.mark.parametrize("depth", [300, 100_000])
@pytest.mark.parametrize("shape", ["submission", "data chunk", "final"])
def test_deep_json_is_refused(shape: str, depth: int) -> None:
    event_id, fields = SHAPES[shape]
    assert "data" in refused(event_id, {**fields, "data": "[" * depth + "]" * depth})


@pytest.mark.parametrize("digits", [10, 5000])
def test_huge_integers_are_refused_or_kept_whole(digits: int) -> None:
    fields = {**DATA, "data": "7" * digits}
    if digits > 4300:
        assert "data" in refused(HERE, fields)
    else:
        assert event_from_fields(HERE, fields).to_fields()["data"] == "7" * digits


@pytest.mark.parametrize("state", ["submitted", "working"])
def test_a_final_has_a_final_state(state: str) -> None:
    assert state in refused(HERE, {**FINAL, "state": state})


@pytest.mark.parametrize("state", ["submitted", "completed", "failed", "canceled", "input-required"])
@pytest.mark.parametrize("shape", ["opening", "progress"])
def test_a_status_of_a_worker_says_working(shape: str, state: str) -> None:
    event_id, fields = SHAPES[shape]
    assert state in refused(event_id, {**fields, "state": state})


@pytest.mark.parametrize("other", ["progress", "hand-back"])
def test_a_status_has_one_shape(other: str) -> None:
    refused(HERE, {**OPENING, **SHAPES[other][1]})


@pytest.mark.parametrize("extra", [{"progress": "0.5"}, {"metadata": "{}"}])
@pytest.mark.parametrize("shape", ["opening", "hand-back"])
def test_progress_belongs_to_a_text(shape: str, extra: dict[str, str]) -> None:
    event_id, fields = SHAPES[shape]
    assert next(iter(extra)) in refused(event_id, {**fields, **extra})


@pytest.mark.parametrize("fields", [{**TEXT, "data": "1"}, {**TEXT, "data": "null"}, {**DATA, "text": "x"}])
def test_a_chunk_has_one_shape(fields: dict[str, str]) -> None:
    refused(HERE, fields)


@pytest.mark.parametrize("shape", ["opening", "text chunk", "final"])
def test_the_id_is_the_entrys_own(shape: str) -> None:
    event_id, fields = SHAPES[shape]
    assert "id:" in refused(event_id, {**fields, "id": "9-9"})


def test_input_values_do_not_show_in_errors() -> None:
    assert "hunter2" not in refused(HERE, {**FINAL, "chunks": "hunter2"})


@given(st.dictionaries(st.sampled_from(["type", "at", "state", "text", "data", "mode", "v", "worker", "chunks"]) | texts, texts))
@pytest.mark.guarantee("G13")
def test_hostile_fields_only_ever_raise_malformed_entry(fields: dict[str, str]) -> None:
    for event_id in (SUBMISSION, HERE):
        try:
            event_from_fields(event_id, fields)
        except MalformedEntry as error:
            if str(event_id) not in error.message:
                raise AssertionError(f"{error} names no entry") from error


def test_events_are_frozen_and_print_their_id() -> None:
    event = ChunkEvent(id=HERE, at=1, text="x")
    with pytest.raises(ValidationError):
        event.text = "y"
    assert json.loads(event.model_dump_json())["id"] == "3-4"


def test_a_worker_cannot_make_a_status_of_no_shape() -> None:
    with pytest.raises(ValidationError, match="only one of them"):
        StatusEvent(id=HERE, at=1)
    with pytest.raises(ValidationError, match="only one of them"):
        StatusEvent(id=HERE, at=1, text="x", handed_back=HandedBack.RETRY)
    request = TaskRequest(agent="a", skill="s", message="m")
    with pytest.raises(ValidationError, match="only one of them"):
        StatusEvent(id=SUBMISSION, at=1, request=request, worker="w", claim=1, strikes=1)
