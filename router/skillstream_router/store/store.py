"""The router's database as its roles see it: whole batches in, rows out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from sqlalchemy import Connection

from skillstream_schemas.settings import Settings

from .database import Database
from .history import RecentMessages, Turns, recent_messages, record_history
from .ledger import charge
from .record import TaskRecord
from .reports import final_text
from .state import open_tasks, record_lost, record_states, submissions, tasks_by_id


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch did: ids that this transaction made final, and ids whose open stream does not belong to their row.

    Either the row is final, or the stream is another submission under the same id. `usurped` are ids where such a
    submission has ended already: it was left alone. `recent` are the messages of the contexts that were asked for.
    """

    ended: frozenset[str]
    contradicted: frozenset[str]
    usurped: frozenset[str] = frozenset()
    recent: Sequence[RecentMessages] = ()


class Store:
    """Responsible for what the router must remember; each method is one transaction.

    Errors: DatabaseUnavailable where trying again may help, DatabaseRefused where it does not.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._database = Database(settings.database_url)

    def __repr__(self) -> str:
        return f"<Store {self._database!r}>"

    async def open(self) -> Self:
        """Opens the database and creates the tables that it lacks."""
        await self._database.open()
        return self

    async def close(self) -> None:
        """Closes the database behind the transaction under way; twice is safe."""
        await self._database.close()

    async def apply(self, batch: Sequence[Turns], lost: Sequence[TaskRecord] = (), context_ids: Sequence[str] = ()) -> Applied:
        """State, history and payment of a batch with one row a task, all or nothing (rule P13).

        History and payment follow from rows that this transaction made final, however often a batch comes.
        `lost` are tasks without a stream. The recent messages of `context_ids` come along: a read of its own would wait
        behind the batches of others.
        """
        return await self._database.write(partial(self._apply, batch=batch, lost=lost, context_ids=context_ids))

    async def recent_messages(self, context_ids: Sequence[str]) -> list[RecentMessages]:
        """What the broker keeps of these contexts: messages up to the settings' number and the limit of a message's size."""
        return await self._database.read(lambda connection: self._recent(connection, context_ids))

    async def open_tasks(self, after: str, limit: int) -> list[TaskRecord]:
        """Tasks that are not final, by id, behind `after`."""
        return await self._database.read(lambda connection: open_tasks(connection, after, limit))

    async def tasks_by_id(self, task_ids: Sequence[str]) -> dict[str, TaskRecord]:
        """Rows of these tasks, as far as they are known."""
        return await self._database.read(lambda connection: tasks_by_id(connection, task_ids))

    async def final_text(self, task_id: str) -> str:
        """The text with which a task ended."""
        return await self._database.read(lambda connection: final_text(connection, task_id))

    def _recent(self, connection: Connection, context_ids: Sequence[str]) -> list[RecentMessages]:
        if not context_ids:
            return []
        return recent_messages(connection, context_ids, self._settings.context_messages, self._settings.limits.message_bytes)

    def _apply(
        self, connection: Connection, batch: Sequence[Turns], lost: Sequence[TaskRecord], context_ids: Sequence[str]
    ) -> Applied:
        batch = sorted(batch, key=lambda turns: turns.record.id)
        changed = record_states(connection, [turns.record for turns in batch])
        ended = [turns for turns in batch if turns.record.state.is_final and turns.record.id in changed]
        record_history(connection, ended)
        charge(connection, [turns.record for turns in ended], self._settings.platform_share)
        unmoved = [turns.record for turns in batch if turns.record.id not in changed]
        known = submissions(connection, [record.id for record in unmoved])
        record_lost(connection, lost)
        foreign = {record.id for record in unmoved if not known[record.id].is_task_of(record)}
        is_open = {record.id for record in unmoved if not record.state.is_final}
        contradicted = {task_id for task_id in is_open if known[task_id].finished_at is not None}
        return Applied(
            ended=frozenset(turns.record.id for turns in ended),
            contradicted=frozenset(contradicted | (foreign & is_open)),
            usurped=frozenset(foreign - is_open),
            recent=self._recent(connection, context_ids),
        )
