"""Task states and the one table of legal transitions."""

from __future__ import annotations

from enum import StrEnum

from .errors import InvalidTransition


class TaskState(StrEnum):
    """Where a task stands; the last four are final."""

    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    INPUT_REQUIRED = "input-required"

    @property
    def is_final(self) -> bool:
        """True where nothing may follow."""
        return not TRANSITIONS[self]

    def check(self, following: TaskState) -> TaskState:
        """Returns `following` if it may come after this state.

        Raises InvalidTransition otherwise. `working` may follow `working`: another attempt opened.
        """
        if following not in TRANSITIONS[self]:
            raise InvalidTransition(f"{following} may not follow {self}")
        return following


_FINALS = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.INPUT_REQUIRED})

TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.SUBMITTED: frozenset({TaskState.WORKING}) | _FINALS,
    TaskState.WORKING: frozenset({TaskState.WORKING}) | _FINALS,
    TaskState.COMPLETED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELED: frozenset(),
    TaskState.INPUT_REQUIRED: frozenset(),
}

FINAL_STATES = _FINALS
