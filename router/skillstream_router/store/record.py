"""A row of the table `tasks`."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from skillstream_schemas.errors import MalformedEntry
from skillstream_schemas.ids import SUBMISSION
from skillstream_schemas.request import TaskRequest
from skillstream_schemas.state import TaskState

UNKNOWN = "unknown"
"""Agent or skill of a task whose request nobody can read any more."""


class TaskRecord(NamedTuple):
    """A task as the database has it: times are unix ms; `request`, `data`, `metadata` and `usage` JSON texts."""

    id: str
    state: TaskState
    agent: str
    skill: str
    submitted_at: int
    price_micros: int = 0
    context_id: str | None = None
    payer: str | None = None
    deadline: int | None = None
    finished_at: int | None = None
    metadata: str | None = None
    usage: str | None = None
    error: str | None = None
    reason: str | None = None
    data: str | None = None
    attempt: int = 0
    last_event_id: str = str(SUBMISSION)
    opened_at: int | None = None
    cancel_requested_at: int | None = None
    request: str | None = None

    @classmethod
    def from_row(cls, row: Any) -> TaskRecord:
        """Reads a row of the table."""
        return cls(**{**row._mapping, "state": TaskState(row.state)})

    def is_task_of(self, seen: TaskRecord) -> bool:
        """True if `seen`, read from a stream, is this task; an id can be used again once a stream's retention has ended.

        A submission behind the recorded end is another one. One before it is the same: a failover may have lost the first
        of two, and a stream that was lost is made again.
        """
        if self.finished_at is not None and self.submitted_at != seen.submitted_at > self.finished_at:
            return False
        asked = (self.agent, self.skill, self.context_id, self.payer)
        return self.skill == UNKNOWN or asked == (seen.agent, seen.skill, seen.context_id, seen.payer)

    def original_request(self) -> TaskRequest:
        """The request as it was submitted; without its message where that is not known any more."""
        if self.request is not None:
            try:
                return TaskRequest.from_fields(json.loads(self.request))
            except (MalformedEntry, ValueError):
                pass
        return TaskRequest(agent=self.agent, skill=self.skill, message="", context_id=self.context_id, payer=self.payer)

    def shown(self) -> dict[str, Any]:
        """What people see of it: everything but the copy of the request, nested values as such."""
        shown = self._asdict() | {"state": self.state.value}
        del shown["request"]
        for name in ("data", "metadata", "usage"):
            shown[name] = None if shown[name] is None else json.loads(shown[name])
        return shown
