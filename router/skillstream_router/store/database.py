"""Transactions on the database, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from skillstream_schemas.errors import DatabaseRefused, DatabaseUnavailable
from skillstream_schemas.settings import without_secret

from .dialect import READ_ONLY, database_file, make_engine
from .tables import metadata

T = TypeVar("T")


class Database:
    """Responsible for one database: its engine, and the one thread in which all its transactions run, one after the other.

    Errors of `write` and `read`: DatabaseUnavailable where trying again may help, DatabaseRefused where it does not.
    """

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._engine = make_engine(database_url)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="skillstream-database")
        self._closed = False

    def __repr__(self) -> str:
        return f"<Database {without_secret(self._url)} {'closed' if self._closed else 'open'}>"

    async def open(self) -> Self:
        """Opens the database and creates what tables it lacks."""
        await self.write(metadata.create_all)
        return self

    async def open_existing(self) -> Self:
        """Opens a database that a router made; raises DatabaseUnavailable where there is none."""
        file = database_file(self._url)
        if not file.exists():
            raise DatabaseUnavailable(f"there is no database {file}; --database or SKILLSTREAM_DATABASE_URL names another")
        return self

    async def close(self) -> None:
        """Waits for the transaction under way and closes; twice is safe."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.dispose)
        self._thread.shutdown(wait=False)

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in one transaction that takes the write lock at once; it is committed when this returns.

        A caller that is cancelled does not stop the transaction.
        """
        return await self._run(lambda: self._in_transaction(work, read_only=False))

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one snapshot."""
        return await self._run(lambda: self._in_transaction(work, read_only=True))

    async def _run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise DatabaseUnavailable("the database is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _in_transaction(self, work: Callable[[Connection], T], *, read_only: bool) -> T:
        try:
            with self._engine.connect() as connection:
                if read_only:
                    connection = connection.execution_options(**READ_ONLY)
                with connection.begin():
                    return work(connection)
        except (SQLAlchemyError, OverflowError, UnicodeError) as error:
            # what is not plainly about a value is worth another try: nothing may be given up for a broken disk
            kind = DatabaseRefused if _is_about_values(error) else DatabaseUnavailable
            raise kind(_what(error)) from None


def _is_about_values(error: Exception) -> bool:
    if isinstance(error, DBAPIError):
        return isinstance(error, (IntegrityError, DataError))
    return isinstance(error, (StatementError, OverflowError, UnicodeError))


def _what(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return f"{type(cause).__name__}: {str(cause).splitlines()[0] if str(cause) else ''}"
