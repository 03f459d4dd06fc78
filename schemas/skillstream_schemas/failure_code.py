"""Codes of tasks that ended as `failed`."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class FailureCode(StrEnum):
    """Why a task ended as `failed`: the `error` field of its final event.

    `meaning` is a sentence for people, `hint` says what to do.
    """

    meaning: str
    hint: str

    SKILL_ERROR = (
        "skill_error", "The skill raised an exception, or yielded or returned what no skill may.",
        "read `reason`: type and message of the exception; the worker logs it with its traceback",
    )  # fmt: skip
    CONTEXT_ERROR = (
        "context_error", "What the skill is given could not be made of the request and its history; the skill did not run.",
        "read `reason`: type and message of the error; the worker logs it with its traceback",
    )  # fmt: skip
    TIMEOUT = (
        "timeout", "The skill ran longer than its own timeout.",
        "give the skill a longer `timeout`, or the task less to do",
    )  # fmt: skip
    DEADLINE_EXCEEDED = (
        "deadline_exceeded", "The task's deadline passed before it was done.",
        "submit with a later deadline, or run more workers",
    )  # fmt: skip
    ATTEMPTS_EXHAUSTED = (
        "attempts_exhausted", "All attempts that are allowed ended without a final: workers died, or the skill asked for more.",
        "look at the last worker, which `reason` names; `max_attempts` is the bound",
    )  # fmt: skip
    INTERRUPTED = (
        "interrupted", 'The attempt ended early, and the skill has `on_retry="fail"`: it is never run twice.',
        "find out what the attempt did, then submit a new task",
    )  # fmt: skip
    UNSTARTABLE = (
        "unstartable", "The job was claimed many times more than attempts are allowed, and no claim came to an end.",
        "look at the logs of the workers that claim it",
    )  # fmt: skip
    EXPIRED = (
        "expired", "The task was not final an hour before its stream would have gone.",
        "raise `stream_ttl_s`, or run more workers",
    )  # fmt: skip
    STREAM_LOST = (
        "stream_lost", "The broker lost the stream of the task, or entries of it, before its final.",
        "check the broker's persistence; submit the task again under a new id",
    )  # fmt: skip
    TASK_ID_TAKEN = (
        "task_id_taken", "Another task had this id before; it is over and stays as it was recorded.",
        "submit under an id that was never used",
    )  # fmt: skip
    UNKNOWN_SKILL = (
        "unknown_skill", "The agent that took the task has no skill of this name.",
        "start workers that have the skill before services ask for it",
    )  # fmt: skip
    UNKNOWN_FUNCTION = (
        "unknown_function", "The job on the queue calls another function than `run_skill`.",
        "plain arq functions have a queue of their own: `arq:queue:{<agent>}:plain`",
    )  # fmt: skip
    MALFORMED_JOB = (
        "malformed_job", "The job on the queue is not arq's layout in msgpack, or is too large or too deep.",
        "see the section on arq in wire-format.md",
    )  # fmt: skip
    MALFORMED_REQUEST = (
        "malformed_request", "The request breaks the contract: a field is missing, unknown or out of range.",
        "`reason` names the field",
    )  # fmt: skip
    MESSAGE_TOO_LARGE = (
        "message_too_large", "The message, metadata, history or data of a stock client's request is over its limit.",
        "put large input where the skill can fetch it and send a reference",
    )  # fmt: skip
    EVENT_TOO_LARGE = (
        "event_too_large", "The skill said a status or a structured chunk over the limit of one stream entry.",
        "send less at once, or text: text is cut",
    )  # fmt: skip
    OUTPUT_TOO_LARGE = (
        "output_too_large", "The skill produced more text, or larger final data, than its limit.",
        "put large output where the reader can fetch it and say a reference",
    )  # fmt: skip

    def __new__(cls, value: str, meaning: str = "", hint: str = "") -> Self:
        """A member is its code; the rest describes it."""
        member = str.__new__(cls, value)
        member._value_, member.meaning, member.hint = value, meaning, hint
        return member
