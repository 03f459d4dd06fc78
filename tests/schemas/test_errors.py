"""One tree of errors: stable codes, texts that say what happened and what to do."""

from __future__ import annotations

import inspect

import pytest

from skillstream_schemas import errors, workflow_errors
from skillstream_schemas.errors import FailureCode, NotAllSubmitted, SkillstreamError, StreamGap, TaskIdTaken, TextReset

CLASSES = list(
    {
        value: None
        for module in (errors, workflow_errors)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, SkillstreamError)
    }
)
OWN_CONSTRUCTOR: dict[type[SkillstreamError], SkillstreamError] = {
    StreamGap: StreamGap("t", "1-2", "1-4"),
    TextReset: TextReset("t", 2, 5, "2-1"),
    NotAllSubmitted: NotAllSubmitted(["a", "b"], {1: TaskIdTaken("task t")}),
}

STABLE = {
    "skillstream_error", "invalid_request", "invalid_name", "message_too_large", "invalid_settings", "missing_extra",
    "unknown_agent",
    "unknown_skill", "unknown_task", "task_id_taken", "invalid_transition", "malformed_entry", "malformed_job", "event_too_large",
    "output_too_large", "stream_gap", "stream_lost", "text_reset", "result_timeout", "broker_unavailable", "broker_refused",
    "not_replicated", "shards_mismatch", "invalid_workflow", "workflow_cycle", "unreachable_node", "fan_out_without_router",
    "invalid_event", "invalid_node_output", "model_unavailable",
}  # fmt: skip
"""Codes that other programs may rely on: one may be added, none may change or go."""


def test_each_class_has_a_code_of_its_own() -> None:
    codes = [cls.code for cls in CLASSES]
    assert len(codes) == len(set(codes))
    assert all("code" in vars(cls) for cls in CLASSES)
    assert set(codes) >= STABLE


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if cls not in OWN_CONSTRUCTOR], ids=lambda cls: cls.code)
def test_the_first_line_of_the_docstring_is_the_message(cls: type[SkillstreamError]) -> None:
    first_line = inspect.cleandoc(cls.__doc__ or "").splitlines()[0]
    assert first_line.endswith(".")
    error = cls()
    assert error.message == first_line
    assert str(error) == f"{cls.code}: {first_line}" + (f" ({cls.hint})" if cls.hint else "")
    assert cls("why").message == "why"


@pytest.mark.parametrize("error", OWN_CONSTRUCTOR.values(), ids=lambda error: error.code)
def test_errors_with_places_tell_them(error: SkillstreamError) -> None:
    assert str(error).startswith(f"{error.code}: ")
    assert "task t" in str(error)


def test_a_gap_names_its_range() -> None:
    error = StreamGap("t", "1-2", "1-4")
    assert (error.task_id, error.after, error.before) == ("t", "1-2", "1-4")
    assert "between 1-2 and 1-4" in str(error)


def test_a_subclass_without_docstring_has_a_message_all_the_same() -> None:
    class Bare(SkillstreamError):
        code = "bare"

    assert str(Bare()) == "bare: Bare"


def test_failure_codes_of_tasks_are_stable() -> None:
    assert {str(code) for code in FailureCode} >= {
        "skill_error", "timeout", "deadline_exceeded", "attempts_exhausted", "interrupted", "unstartable", "expired",
        "stream_lost",
        "unknown_skill", "malformed_job", "malformed_request", "message_too_large", "event_too_large", "output_too_large",
    }  # fmt: skip
