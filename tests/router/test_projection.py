"""From entries to rows, with no server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillstream_router.projection import Notice, RawEntry, Ring, fold, project
from skillstream_schemas.state import TaskState


def entry(entry_id: str, fields: dict[str, Any]) -> RawEntry:
    raw = {name.encode(): value if isinstance(value, bytes) else str(value).encode() for name, value in fields.items()}
    return RawEntry(entry_id, [part for field in raw.items() for part in field])


def submission(**changes: Any) -> RawEntry:
    fields = {"type": "status", "state": "submitted", "v": 1, "at": 1000, "agent": "poet", "skill": "rhyme", "message": "hi"}
    return entry("0-1", fields | {"payer": "acme", "price_micros": 9, "deadline": 5000, "context_id": "chat"} | changes)


def final(**changes: Any) -> RawEntry:
    fields = {"type": "final", "state": "completed", "text": "done", "metadata": '{"a":1}', "chunks": 0, "at": 2000}
    return entry("3-7", fields | changes)


def test_rings_of_a_task_fold_to_one_notice_with_the_earliest_times() -> None:
    rings = [
        Ring(0, "9-0", "b", "opened"),
        Ring(0, "7-0", "b", "opened"),
        Ring(0, "8-0", "b", "cancel"),
        Ring(1, "5-0", "a", "gone", agent="poet"),
        Ring(1, "6-0", "a", "final"),
        Ring(1, "4-0", problem="it names no task"),
    ]
    assert fold(rings) == {
        "a": Notice("a", gone_agent="poet"),
        "b": Notice("b", opened_at=7, cancel_requested_at=8),
    }
    assert list(fold(rings)) == ["a", "b"]


def test_a_submission_alone_is_submitted_and_keeps_its_request() -> None:
    first = submission()
    projected = project(Notice("t"), first, first)
    record = projected.record
    assert (record.state, record.attempt, record.last_event_id, record.finished_at) == (TaskState.SUBMITTED, 0, "0-1", None)
    assert (record.payer, record.price_micros, record.deadline, record.submitted_at) == ("acme", 9, 5000, 1000)
    assert json.loads(record.request or "")["message"] == "hi"
    assert record.original_request().message == "hi"
    assert projected.problem is None


def test_any_entry_of_an_attempt_is_working_whatever_it_says() -> None:
    record = project(Notice("t", opened_at=1500), submission(), entry("2-9", {"type": "chunk", "text": b"\xff"})).record
    assert (record.state, record.attempt, record.last_event_id, record.opened_at) == (TaskState.WORKING, 2, "2-9", 1500)


def test_a_final_brings_state_text_and_what_it_carries() -> None:
    projected = project(Notice("t"), submission(), final(state="failed", error="timeout", reason="slow", usage='{"n":2}'))
    record = projected.record
    assert (record.state, record.error, record.reason, record.finished_at) == (TaskState.FAILED, "timeout", "slow", 2000)
    assert (record.metadata, record.usage, record.data, record.request) == ('{"a":1}', '{"n":2}', None, None)
    assert (projected.message, projected.reply, projected.problem) == ("hi", "done", None)


@pytest.mark.guarantee("G13")
@pytest.mark.parametrize(
    "bad",
    [{"v": "2"}, {"message": b"\xff\xfe"}, {"price_micros": "lots"}, {"surprise": "1"}, {"metadata": "{"}, {"type": "chunk"}],
    ids=["version", "not UTF-8", "number", "unknown field", "JSON", "no submission"],
)
def test_an_unreadable_request_leaves_state_and_reply_and_costs_nothing(bad: dict[str, Any]) -> None:
    projected = project(Notice("t"), submission(**bad), final())
    record = projected.record
    assert (record.state, record.agent, record.skill) == (TaskState.COMPLETED, "poet", "rhyme")
    assert (record.payer, record.price_micros, record.context_id) == (None, 0, None)
    assert (projected.message, projected.reply) == (None, "done")
    assert projected.problem is not None


@pytest.mark.guarantee("G13", "G16")
@pytest.mark.parametrize(
    "bad",
    [{"text": b"\xff"}, {"metadata": "{"}, {"state": "happy"}, {"state": "working"}, {"chunks": "-1"}],
    ids=["not UTF-8", "JSON", "unknown state", "state that is not final", "chunks"],
)
def test_an_unreadable_final_is_a_failed_task(bad: dict[str, Any]) -> None:
    projected = project(Notice("t"), submission(), final(**bad))
    record = projected.record
    assert (record.state, record.error, record.finished_at) == (TaskState.FAILED, "malformed_entry", 2000)
    assert record.reason
    assert projected.problem is not None


@pytest.mark.guarantee("G13")
def test_a_stream_that_is_no_task_has_a_row_all_the_same() -> None:
    foreign = entry("1700000000000-0", {"hello": "world"})
    record = project(Notice("t"), foreign, foreign).record
    assert (record.state, record.agent, record.skill, record.attempt) == (TaskState.WORKING, "unknown", "unknown", 1700000000000)
