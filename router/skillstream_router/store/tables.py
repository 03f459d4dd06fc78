"""The router's tables: tasks, messages, and a ledger in double entry. Times are unix ms, amounts micro-USD."""

from __future__ import annotations

import sqlalchemy.event
from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint
from sqlalchemy.schema import DDL, ExecutableDDLElement

metadata = MetaData()

tasks = Table(
    "tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("skill", Text, nullable=False),
    Column("context_id", Text),
    Column("payer", Text),
    Column("attempt", BigInteger, nullable=False),
    Column("last_event_id", Text, nullable=False),
    Column("price_micros", BigInteger, nullable=False),
    Column("error", Text),
    Column("reason", Text),
    Column("submitted_at", BigInteger, nullable=False),
    Column("opened_at", BigInteger),
    Column("cancel_requested_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("deadline", BigInteger),
    # the request's fields as JSON while the task is open: a lost stream is made again from it
    Column("request", Text),
    # the final's fields, JSON as they stood on the stream; its text is the agent's message
    Column("data", Text),
    Column("metadata", Text),
    Column("usage", Text),
    Index("tasks_by_submission", "submitted_at"),
)

OPEN_TASKS = Index("open_tasks", tasks.c.id, sqlite_where=tasks.c.finished_at.is_(None))

messages = Table(
    "messages",
    metadata,
    # never used twice: the highest id is the version of a context's list on the broker
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("context_id", Text),
    Column("task_id", Text, ForeignKey("tasks.id"), nullable=False),
    Column("role", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    # when the task ended, the same in both messages of a turn
    Column("turn_at", BigInteger, nullable=False),
    UniqueConstraint("task_id", "role"),
    Index("messages_by_turn", "context_id", "turn_at"),
    sqlite_autoincrement=True,
)

CONVERSATION_ORDER = (messages.c.turn_at, messages.c.task_id, messages.c.id)
"""The order of a conversation, whichever turn was recorded first: as tasks ended, a question right before its answer."""

accounts = Table(
    "accounts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("opened_at", BigInteger, nullable=False),
)

transfers = Table(
    "transfers",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("task_id", Text, ForeignKey("tasks.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("debit", Text, ForeignKey("accounts.name"), nullable=False),
    Column("credit", Text, ForeignKey("accounts.name"), nullable=False),
    Column("amount_micros", BigInteger, CheckConstraint("amount_micros > 0"), nullable=False),
    Column("at", BigInteger, nullable=False),
    UniqueConstraint("task_id", "kind"),
    sqlite_autoincrement=True,
)

postings = Table(
    "postings",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("transfer_id", Integer, ForeignKey("transfers.id"), nullable=False),
    Column("account", Text, ForeignKey("accounts.name"), nullable=False),
    # signed: what an account gives is negative; the balance of an account is the sum of its postings
    Column("amount_micros", BigInteger, CheckConstraint("amount_micros <> 0"), nullable=False),
    UniqueConstraint("transfer_id", "account"),
    Index("postings_by_account", "account", "id"),
    sqlite_autoincrement=True,
)


def _refusal(table: Table, change: str) -> ExecutableDDLElement:
    name = f"{table.name}_no_{change.lower()}"
    body = f"SELECT RAISE(ABORT, '{table.name} are never changed')"
    ddl: ExecutableDDLElement = DDL(f"CREATE TRIGGER {name} BEFORE {change} ON {table.name} BEGIN {body}; END")  # type: ignore[no-untyped-call]
    return ddl.execute_if(dialect="sqlite")


for _table in (transfers, postings):
    for _change in ("UPDATE", "DELETE"):
        sqlalchemy.event.listen(_table, "after_create", _refusal(_table, _change))
