"""The duty "history": the two turns of each ended task, and what of a context the broker keeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, func, select

from .dialect import ManyRows, insert, json_object, listed, utf8_bytes
from .record import TaskRecord
from .tables import CONVERSATION_ORDER, messages

_INSERT = ManyRows(
    insert(messages).on_conflict_do_nothing(index_elements=[messages.c.task_id, messages.c.role]),
    ("context_id", "task_id", "role", "text", "at", "turn_at"),
)


class Turns(NamedTuple):
    """What was said in an ended task: the user's message if it could be read, the agent's text if there was any."""

    record: TaskRecord
    message: str | None
    reply: str | None


class RecentMessages(NamedTuple):
    """The newest messages of a context, oldest first, each as the JSON of a HistoryMessage.

    `version` is the highest message id among the newest, those too that are left out for their size; it rises with each
    change, since what is recorded later has a higher id wherever it stands. `size_bytes` is that of the messages' texts.
    """

    context_id: str
    version: int
    size_bytes: int
    messages: tuple[str, ...]


def record_history(connection: Connection, ended: Sequence[Turns]) -> None:
    """Adds the turns of tasks that just became final, the user's message first."""
    rows: list[tuple[str | None, str, str, str, int, int]] = []
    for record, message, reply in ended:
        ended_at = record.finished_at or 0
        turn_at = max(ended_at, record.submitted_at)  # a final that cannot be read may lack its time
        if message is not None:
            rows.append((record.context_id, record.id, "user", message, record.submitted_at, turn_at))
        if reply:
            rows.append((record.context_id, record.id, "agent", reply, ended_at, turn_at))
    _INSERT(connection, rows)


def recent_messages(connection: Connection, context_ids: Sequence[str], count: int, limit_bytes: int) -> list[RecentMessages]:
    """The newest `count` messages of each context, fewer where they are over `limit_bytes` together."""
    newest_first: dict[str, list[tuple[int, str, int]]] = {}
    found: Sequence[Any] = connection.execute(_RECENT, {"wanted": json.dumps(context_ids), "older": count - 1}).all()
    for context_id, message_id, message, text_bytes in found:
        newest_first.setdefault(context_id, []).append((message_id, message, text_bytes))
    # of turns that ended at once with the oldest of them there may be more
    newest = {context_id: rows[:count] for context_id, rows in newest_first.items()}
    return [
        RecentMessages(context_id, max(message_id for message_id, *_ in rows), *_within(rows, limit_bytes))
        for context_id, rows in newest.items()
    ]


def _within(newest_first: Sequence[tuple[int, str, int]], limit_bytes: int) -> tuple[int, tuple[str, ...]]:
    kept: list[str] = []
    size_bytes = 0
    for _, message, text_bytes in newest_first:
        if size_bytes + text_bytes > limit_bytes:
            break
        size_bytes += text_bytes
        kept.append(message)
    return size_bytes, tuple(reversed(kept))


def _recent() -> Select[tuple[str, int, str, int]]:
    wanted = listed("wanted")
    newer = messages.alias("newer")
    oldest_turn = (
        select(newer.c.turn_at)
        .where(newer.c.context_id == wanted.c.value)
        .order_by(newer.c.turn_at.desc())
        .offset(bindparam("older"))
        .limit(1)
        .correlate(wanted)
        .scalar_subquery()
    )
    message = json_object(role=messages.c.role, text=messages.c.text, task_id=messages.c.task_id)
    return (
        select(messages.c.context_id, messages.c.id, message, utf8_bytes(messages.c.text))
        .select_from(wanted.join(messages, messages.c.context_id == wanted.c.value))
        .where(messages.c.turn_at >= func.coalesce(oldest_turn, 0))
        .order_by(messages.c.context_id, *(column.desc() for column in CONVERSATION_ORDER))
    )


_RECENT = _recent()
