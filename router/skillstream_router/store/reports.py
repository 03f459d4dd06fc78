"""What people ask the database: one task, lists of tasks, a conversation, accounts and their statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Connection, Select, func, select

from skillstream_schemas.errors import UnknownTask
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .database import Database
from .record import TaskRecord
from .state import tasks_by_id
from .tables import CONVERSATION_ORDER, accounts, messages, postings, tasks, transfers


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation as the database has it; `at` is unix ms."""

    id: int
    task_id: str
    role: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Account:
    """An account and its balance, the sum of its postings, in micro-USD."""

    name: str
    balance_micros: int
    postings: int


@dataclass(frozen=True, slots=True)
class Posting:
    """A line of a statement: the signed amount in micro-USD, and the balance behind it."""

    id: int
    at: int
    task_id: str
    kind: str
    amount_micros: int
    balance_micros: int


class Reports:
    """Responsible for reading a router's database, also while the router writes it; it changes nothing.

    Errors: DatabaseUnavailable, UnknownTask.
    """

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.database_url)

    async def __aenter__(self) -> Self:
        await self._database.open_existing()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._database.close()

    async def task(self, task_id: str) -> tuple[TaskRecord, str, int]:
        """A task, the text with which it ended ("" while it is open), and what was charged for it; raises UnknownTask."""

        def read(connection: Connection) -> tuple[TaskRecord, str, int]:
            found = task_and_text(connection, task_id)
            if found is None:
                raise UnknownTask(f"task {task_id}")
            return *found, _charged_micros(connection, task_id)

        return await self._database.read(read)

    async def tasks(self, agent: str | None, state: TaskState | None, limit: int) -> list[tuple[TaskRecord, int]]:
        """The tasks submitted last, newest first, of one agent or in one state where asked for, and what was charged for each."""
        query = select(tasks).order_by(tasks.c.submitted_at.desc(), tasks.c.id.desc()).limit(limit)
        if agent is not None:
            query = query.where(tasks.c.agent == agent)
        if state is not None:
            query = query.where(tasks.c.state == state.value)

        def read(connection: Connection) -> list[tuple[TaskRecord, int]]:
            found = [TaskRecord.from_row(row) for row in connection.execute(query)]
            return [(record, _charged_micros(connection, record.id)) for record in found]

        return await self._database.read(read)

    async def history(self, context_id: str) -> list[Message]:
        """All messages of a context, in the order in which its tasks ended."""
        query = messages_of(context_id)
        return await self._database.read(lambda connection: [Message(*row) for row in connection.execute(query)])

    async def accounts(self) -> list[Account]:
        """All accounts by name."""
        balance = func.coalesce(func.sum(postings.c.amount_micros), 0)
        query = (
            select(accounts.c.name, balance, func.count(postings.c.id))
            .select_from(accounts.outerjoin(postings, postings.c.account == accounts.c.name))
            .group_by(accounts.c.name)
            .order_by(accounts.c.name)
        )
        return await self._database.read(lambda connection: [Account(*row) for row in connection.execute(query)])

    async def statement(self, account: str) -> list[Posting]:
        """All postings of an account, oldest first, with the running balance."""
        balance = func.sum(postings.c.amount_micros).over(order_by=postings.c.id)
        query = (
            select(postings.c.id, transfers.c.at, transfers.c.task_id, transfers.c.kind, postings.c.amount_micros, balance)
            .select_from(postings.join(transfers, transfers.c.id == postings.c.transfer_id))
            .where(postings.c.account == account)
            .order_by(postings.c.id)
        )
        return await self._database.read(lambda connection: [Posting(*row) for row in connection.execute(query)])


def _charged_micros(connection: Connection, task_id: str) -> int:
    """What a task's payer gave, in micro-USD."""
    amounts = select(func.coalesce(func.sum(transfers.c.amount_micros), 0)).where(transfers.c.task_id == task_id)
    return int(connection.execute(amounts).scalar_one())


def final_text(connection: Connection, task_id: str) -> str:
    """The text with which a task ended, "" where it had none."""
    text = select(messages.c.text).where(messages.c.task_id == task_id, messages.c.role == "agent")
    return connection.execute(text).scalar_one_or_none() or ""


def task_and_text(connection: Connection, task_id: str) -> tuple[TaskRecord, str] | None:
    """The record of a task and the text with which it ended; None for one that is not known."""
    record = tasks_by_id(connection, [task_id]).get(task_id)
    return None if record is None else (record, final_text(connection, task_id))


def messages_of(context_id: str) -> Select[tuple[Any, ...]]:
    """The query for what makes the `Message`s of a context, in the order in which its tasks ended."""
    columns = (messages.c.id, messages.c.task_id, messages.c.role, messages.c.text, messages.c.at)
    return select(*columns).where(messages.c.context_id == context_id).order_by(*CONVERSATION_ORDER)
