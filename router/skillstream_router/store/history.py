"""The duty "history": the two turns of each ended task, and what of a context the broker keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from skillstream_schemas.limits import utf8_length
from skillstream_schemas.request import HistoryMessage

from .dialect import ManyRows, insert, listed
from .record import TaskRecord
from .tables import messages

_INSERT = ManyRows(
    insert(messages).on_conflict_do_nothing(index_elements=[messages.c.task_id, messages.c.role]),
    ("context_id", "task_id", "role", "text", "at"),
)


@dataclass(frozen=True, slots=True)
class Turns:
    """What was said in an ended task: the user's message if it could be read, the agent's text if there was any."""

    record: TaskRecord
    message: str | None
    reply: str | None


@dataclass(frozen=True, slots=True)
class RecentMessages:
    """The newest messages of a context, oldest first; `version` is the highest message id, `size_bytes` that of their texts."""

    context_id: str
    version: int
    size_bytes: int
    messages: tuple[HistoryMessage, ...]


def record_history(connection: Connection, ended: Sequence[Turns]) -> None:
    """Adds the turns of tasks that just became final; those that ended first come first."""
    rows = []
    for turns in sorted(ended, key=lambda turns: (turns.record.finished_at or 0, turns.record.id)):
        record = turns.record
        said = (("user", turns.message, record.submitted_at), ("agent", turns.reply or None, record.finished_at))
        rows += [(record.context_id, record.id, role, text, at) for role, text, at in said if text is not None]
    _INSERT(connection, rows)


def recent_messages(connection: Connection, context_ids: Sequence[str], count: int, limit_bytes: int) -> list[RecentMessages]:
    """The newest `count` messages of each context, fewer where they are over `limit_bytes` together."""
    found: dict[str, list[Any]] = {}
    for row in connection.execute(_RECENT, {"wanted": json.dumps(list(context_ids)), "older": count - 1}):
        found.setdefault(row.context_id, []).append(row)
    return [RecentMessages(context_id, rows[0].id, *_within(rows, limit_bytes)) for context_id, rows in found.items()]


def _within(newest_first: Sequence[Any], limit_bytes: int) -> tuple[int, tuple[HistoryMessage, ...]]:
    kept: list[HistoryMessage] = []
    size_bytes = 0
    for row in newest_first:
        text_bytes = utf8_length(row.text)
        if size_bytes + text_bytes > limit_bytes:
            break
        size_bytes += text_bytes
        kept.append(HistoryMessage(role=row.role, text=row.text, task_id=row.task_id))
    return size_bytes, tuple(reversed(kept))


def _recent() -> Select[tuple[str, int, str, str, str]]:
    wanted = listed("wanted")
    newer = messages.alias("newer")
    oldest_kept = (
        select(newer.c.id)
        .where(newer.c.context_id == wanted.c.value)
        .order_by(newer.c.id.desc())
        .offset(bindparam("older"))
        .limit(1)
        .correlate(wanted)
        .scalar_subquery()
    )
    return (
        select(messages.c.context_id, messages.c.id, messages.c.role, messages.c.text, messages.c.task_id)
        .select_from(wanted.join(messages, messages.c.context_id == wanted.c.value))
        .where(messages.c.id >= func.coalesce(oldest_kept, 0))
        .order_by(messages.c.context_id, messages.c.id.desc())
    )


_RECENT = _recent()
