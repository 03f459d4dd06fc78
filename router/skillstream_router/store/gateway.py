"""The database as the HTTP gateway sees it: API keys, owners of contexts, tasks that left the broker, conversations."""

from __future__ import annotations

import secrets as random
from typing import Self

from sqlalchemy import Connection, literal, select, tuple_, update

from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.gateway_errors import UnknownKey
from skillstream_schemas.settings import Settings

from .api_key import ApiKey, digest_of, new_key
from .database import Database
from .dialect import insert
from .gateway_tables import api_keys, context_owners, secrets
from .record import TaskRecord
from .reports import Message, messages_of, task_and_text
from .state import tasks_by_id
from .tables import CONVERSATION_ORDER, messages, tasks

PAGE_CHARS = 8 * 1024 * 1024
"""A text may have twice as many: a page of a thousand must not fill the memory."""
_ROWS_AT_ONCE = 20
_SIGNING_SECRET = "read_tokens"


class GatewayStore:
    """Responsible for what the gateway keeps and looks up, beside the router that writes the same database.

    Errors: DatabaseUnavailable, DatabaseRefused.
    """

    def __init__(self, settings: Settings) -> None:
        self._database = Database(settings.database_url)

    async def open(self) -> Self:
        """Opens the database and creates the tables that it lacks."""
        await self._database.open()
        return self

    async def close(self) -> None:
        """Closes the database; twice is safe."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def create_key(self, payer: str, label: str, now_ms: int) -> tuple[ApiKey, str]:
        """Makes a key for a payer; returns what is kept of it, and the key, which nobody can show again."""
        key_id, key = new_key()
        kept = ApiKey(key_id, digest_of(key), payer, label, now_ms)
        row = {"id": key_id, "digest": kept.digest, "payer": payer, "label": label, "created_at": now_ms}
        await self._database.write(lambda connection: connection.execute(api_keys.insert(), row))
        return kept, key

    async def keys(self) -> list[ApiKey]:
        """All keys, revoked ones too, oldest first."""
        query = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
        return await self._database.read(lambda connection: [ApiKey(**row._mapping) for row in connection.execute(query)])

    async def revoke_key(self, key_id: str, now_ms: int) -> None:
        """Ends a key; raises UnknownKey for one that is not there or is revoked already."""
        change = update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None)).values(revoked_at=now_ms)
        if await self._database.write(lambda connection: connection.execute(change).rowcount) == 0:
            raise UnknownKey(f"no key {key_id[:40]!r} is in use")

    async def signing_secret(self) -> bytes:
        """The secret that signs read tokens, the same for all routers on this database; made at the first call."""
        fresh = {"name": _SIGNING_SECRET, "value": random.token_hex(32)}

        def read_or_make(connection: Connection) -> str:
            connection.execute(insert(secrets).on_conflict_do_nothing(index_elements=[secrets.c.name]), fresh)
            kept: str = connection.execute(select(secrets.c.value).where(secrets.c.name == _SIGNING_SECRET)).scalar_one()
            return kept

        return bytes.fromhex(await self._database.write(read_or_make))

    async def owner_of_context(self, context_id: str) -> str | None:
        """The payer to whom a context belongs, None where nobody paid for a task in it yet."""
        return await self._database.read(lambda connection: _owner(connection, context_id))

    async def claim_context(self, context_id: str, payer: str) -> bool:
        """Makes a context the payer's own unless it is somebody's; True if it is the payer's now."""

        def claim(connection: Connection) -> bool:
            owner = _owner(connection, context_id)
            if owner is None:
                connection.execute(insert(context_owners), {"context_id": context_id, "payer": payer})
            return owner in (None, payer)

        return await self._database.write(claim)

    async def task(self, task_id: str) -> tuple[TaskRecord, str] | None:
        """The record of a task and the text with which it ended; None for one that is not known."""
        return await self._database.read(lambda connection: task_and_text(connection, task_id))

    async def submission(self, task_id: str) -> tuple[TaskRecord, str | None] | None:
        """The record of a task and the message with which it was asked, None where that is not known; None for no task."""
        asked = select(messages.c.text).where(messages.c.task_id == task_id, messages.c.role == "user")

        def read(connection: Connection) -> tuple[TaskRecord, str | None] | None:
            record = tasks_by_id(connection, [task_id]).get(task_id)
            if record is None:
                return None
            if not record.state.is_final:
                return record, record.original_request().message
            return record, connection.execute(asked).scalar_one_or_none()

        return await self._database.read(read)

    async def messages(self, context_id: str, after: int, limit: int) -> tuple[list[Message], bool]:
        """Messages of a context that stand behind its message `after` (an id; 0: all), and whether there may be more.

        They come in the order in which tasks ended. `limit` at most, fewer where their texts are over `PAGE_CHARS`
        together, but one at least. Raises InvalidRequest where `after` is no message of this context.
        """
        place = select(*CONVERSATION_ORDER).where(messages.c.id == after, messages.c.context_id == context_id)
        whole = messages_of(context_id).limit(limit).execution_options(yield_per=_ROWS_AT_ONCE)

        def read(connection: Connection) -> tuple[list[Message], bool]:
            query = whole
            if after:
                last = connection.execute(place).one_or_none()
                if last is None:
                    raise InvalidRequest(f"after: context {context_id} has no message {after}")
                query = whole.where(tuple_(*CONVERSATION_ORDER) > tuple_(*map(literal, last)))
            page: list[Message] = []
            size = 0
            for row in connection.execute(query):
                size += len(row.text)
                if page and size > PAGE_CHARS:
                    return page, True
                page.append(Message(*row))
            return page, len(page) == limit

        return await self._database.read(read)


def _owner(connection: Connection, context_id: str) -> str | None:
    """Whose context it is: of whoever claimed it, or of the one whose task was the first to end in it."""
    claimed = select(context_owners.c.payer).where(context_owners.c.context_id == context_id)
    owner: str | None = connection.execute(claimed).scalar_one_or_none()
    if owner is not None:
        return owner
    first = (
        select(tasks.c.payer)
        .select_from(messages.join(tasks, tasks.c.id == messages.c.task_id))
        .where(messages.c.context_id == context_id)
        .order_by(*CONVERSATION_ORDER)
        .limit(1)
    )
    found = connection.execute(first).one_or_none()
    return None if found is None else found.payer or ""
