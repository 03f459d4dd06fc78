"""Event ids order and continue as the streams do; names keep keys whole."""

from __future__ import annotations

import re
import time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillstream_schemas.errors import InvalidName
from skillstream_schemas.ids import START, EventId, check_name, is_name, new_task_id

from .strategies import event_ids, names, numbers


@given(event_ids)
def test_an_event_id_reads_back_what_it_writes(event_id: EventId) -> None:
    assert EventId.parse(str(event_id)) == event_id


@given(numbers)
def test_a_bare_attempt_is_the_place_before_its_first_entry(attempt: int) -> None:
    assert EventId.parse(str(attempt)) == EventId(attempt, 0)


def test_zero_is_the_place_before_everything() -> None:
    assert EventId.parse("0") == START


@pytest.mark.parametrize(
    "text", ["", "-", "1-", "-1", "1-2-3", "a-1", "1-b", " 1-2", "1-2\n", "+1-2", "1.5-2", "١-2", "1" * 16, f"1-{'1' * 16}", "$"]
)
def test_what_is_no_event_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidName):
        EventId.parse(text)


@given(event_ids, event_ids)
def test_event_ids_order_by_attempt_then_place(one: EventId, other: EventId) -> None:
    assert (one < other) == ((one.attempt, one.seq) < (other.attempt, other.seq))


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))
def test_followed_means_next_in_the_attempt_or_first_of_a_newer_one(a: int, b: int, c: int, d: int) -> None:
    here, there = EventId(a, b), EventId(c, d)
    expected = (c == a and d == b + 1) or (c > a and d == 1)
    assert here.is_followed_by(there) is expected
    if expected:
        assert here < there


@pytest.mark.parametrize(("event_id", "expected"), [("0-1", False), ("1-1", True), ("1-2", False), ("7-1", True), ("2-0", False)])
def test_an_opening_is_the_first_entry_of_an_attempt_by_a_worker(event_id: str, expected: bool) -> None:
    assert EventId.parse(event_id).is_opening is expected


@given(names)
def test_names_of_the_allowed_characters_are_kept(name: str) -> None:
    assert check_name(name, "the name") == name


@pytest.mark.parametrize(
    "name", ["", "a" * 129, "{a}", "a}", "a b", "a\n", "\n", "a:b", "ä", "a/b", "a\x00", "*", ".", "..", "." * 128]
)
@pytest.mark.guarantee("G13")
def test_names_that_would_break_a_key_are_refused(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(InvalidName, match="the task id"):
        check_name(name, "the task id")


def test_task_ids_are_uuids_of_version_7_in_order_of_time() -> None:
    before_ms = time.time_ns() // 1_000_000
    made = UUID(new_task_id())
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert before_ms <= made.int >> 80 <= time.time_ns() // 1_000_000
    assert re.fullmatch(r"[0-9a-f-]{36}", str(made))
    assert is_name(str(made))


def test_task_ids_do_not_repeat() -> None:
    assert len({new_task_id() for _ in range(2000)}) == 2000
