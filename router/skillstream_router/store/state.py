"""The duty "state": one row a task, which only goes forward (rule P13)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Text, and_, bindparam, func, literal_column, or_, select, tuple_, update

from skillstream_schemas.state import TRANSITIONS, TaskState

from .dialect import ManyRows, insert, listed
from .record import UNKNOWN, TaskRecord
from .tables import tasks

_COLUMNS = tuple(tasks.c.keys())
_in_order = itemgetter(*(TaskRecord._fields.index(name) for name in _COLUMNS))
_STATE = _COLUMNS.index("state")
_FIRST_KEPT = ("opened_at", "cancel_requested_at")


def _upsert() -> ManyRows:
    statement = insert(tasks)
    new = statement.excluded
    changes: dict[Any, Any] = {name: new[name] for name in _COLUMNS if name not in ("id", "submitted_at")}
    changes |= {name: func.coalesce(tasks.c[name], new[name]) for name in _FIRST_KEPT}
    statement = statement.on_conflict_do_update(
        index_elements=[tasks.c.id], set_=changes, where=and_(_is_legal(new), _is_newer(new), _is_same_task(new))
    )
    return ManyRows(statement.returning(tasks.c.id), _COLUMNS)


def _is_legal(new: Any) -> ColumnElement[bool]:
    """The transition table as SQL: from a final state there is no way on."""
    steps = [
        and_(tasks.c.state == _literal(old), new.state.in_([_literal(following) for following in sorted(allowed)]))
        for old, allowed in TRANSITIONS.items()
        if allowed
    ]
    return or_(*steps)


def _literal(state: TaskState) -> ColumnElement[str]:
    return literal_column(f"'{state.value}'", Text)


def _is_newer(new: Any) -> ColumnElement[bool]:
    """Within one state a later look wins; of two ids of an attempt the longer, then the larger text is the later one."""
    old = tasks.c
    later = tuple_(new.attempt, func.length(new.last_event_id), new.last_event_id) > tuple_(
        old.attempt, func.length(old.last_event_id), old.last_event_id
    )
    return or_(new.state != old.state, later)


def _is_same_task(new: Any) -> ColumnElement[bool]:
    """`TaskRecord.is_task_of` for rows that are not final."""
    old = tasks.c
    asked = [old[name].is_not_distinct_from(new[name]) for name in ("agent", "skill", "context_id", "payer")]
    return or_(old.skill == literal_column(f"'{UNKNOWN}'", Text), and_(*asked))


_UPSERT = _upsert()
_INSERT_LOST = ManyRows(insert(tasks).on_conflict_do_nothing(index_elements=[tasks.c.id]), _COLUMNS)
_CANCEL = (
    update(tasks)
    .where(tasks.c.id == bindparam("task_id"), tasks.c.cancel_requested_at.is_(None), tasks.c.finished_at.is_(None))
    .values(cancel_requested_at=bindparam("at"))
)
_ASKED = listed("asked")
_SUBMISSION = ("id", "state", "agent", "skill", "submitted_at", "context_id", "payer", "finished_at")
_SUBMISSIONS = select(*(tasks.c[name] for name in _SUBMISSION)).where(tasks.c.id.in_(select(_ASKED.c.value)))


def _rows(records: Sequence[TaskRecord]) -> list[list[Any]]:
    """Values in the order of the columns; the state as a plain string, since the driver looks for an adapter of any other."""
    rows = [list(_in_order(record)) for record in records]
    for row in rows:
        row[_STATE] = row[_STATE].value
    return rows


def record_states(connection: Connection, records: Sequence[TaskRecord]) -> set[str]:
    """Writes rows, sorted by id, one a task; returns the ids of those that this statement changed."""
    if not records:
        return set()
    changed = set(_UPSERT(connection, _rows(records)))
    cancels = [
        {"task_id": record.id, "at": record.cancel_requested_at}
        for record in records
        if record.cancel_requested_at is not None and record.id not in changed
    ]
    if cancels:
        connection.execute(_CANCEL, cancels)
    return changed


def record_lost(connection: Connection, records: Sequence[TaskRecord]) -> None:
    """Writes rows of tasks that have no stream, unless they are known."""
    _INSERT_LOST(connection, _rows(records))


def submissions(connection: Connection, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
    """Of rows of these tasks what tells a submission from another, and whether it has ended."""
    if not task_ids:
        return {}
    found = connection.execute(_SUBMISSIONS, {"asked": json.dumps(task_ids)})
    return {row.id: TaskRecord.from_row(row) for row in found}


def open_tasks(connection: Connection, after: str, limit: int) -> list[TaskRecord]:
    """Tasks that are not final, by id, behind `after`."""
    page = select(tasks).where(tasks.c.finished_at.is_(None), tasks.c.id > after).order_by(tasks.c.id).limit(limit)
    return [TaskRecord.from_row(row) for row in connection.execute(page)]


def tasks_by_id(connection: Connection, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
    """Rows of these tasks, as far as they are known."""
    found = connection.execute(select(tasks).where(tasks.c.id.in_(task_ids)))
    return {row.id: TaskRecord.from_row(row) for row in found}
