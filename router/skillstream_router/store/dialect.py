"""The one place that knows which database it is: the engine, its settings, and the INSERT that can do nothing or update."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.settings import without_secret

__all__ = ["READ_ONLY", "ManyRows", "database_file", "insert", "make_engine"]

READ_ONLY = {"skillstream_read_only": True}
"""Execution options of a connection that only reads."""

_BUSY_TIMEOUT_MS = 5000


class ManyRows:
    """Responsible for inserting many rows at little cost each: the statement is compiled once, rows go to the driver as they are.

    `columns` is the order of a row's values. Half the time of a batch went into SQLAlchemy's own handling of each row.
    """

    def __init__(self, statement: Insert, columns: Sequence[str]) -> None:
        compiled = statement.compile(dialect=sqlite.dialect(), column_keys=list(columns))
        assert compiled.positiontup == list(columns)
        self._sql = str(compiled)

    def __call__(self, connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Inserts rows; no rows are no statement."""
        if rows:
            connection.exec_driver_sql(self._sql, list(rows))


def make_engine(database_url: str) -> Engine:
    """An engine for the database of these settings; nothing is opened yet. Raises InvalidSettings for any but SQLite files."""
    url = _checked(database_url)
    # the errors' texts reach logs: what users said and pay stays out of them
    engine = create_engine(url, hide_parameters=True)
    event.listen(engine, "connect", _prepare)
    event.listen(engine, "begin", _begin)
    return engine


def database_file(database_url: str) -> Path:
    """The file behind a URL; raises InvalidSettings as `make_engine` does."""
    return Path(str(_checked(database_url).database))


def _checked(database_url: str) -> URL:
    shown = without_secret(database_url)
    try:
        url = make_url(database_url)
    except ArgumentError:
        raise InvalidSettings(f"database_url {shown} is not a database URL") from None
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise InvalidSettings(f"database_url {shown}: only sqlite:///FILE can be used")
    if not url.database or url.database == ":memory:":
        raise InvalidSettings(f"database_url {shown} names no file")
    return url


def _prepare(connection: Any, _record: object) -> None:
    # the driver's own BEGIN comes late and DEFERRED: a transaction that reads first could then not wait for its write lock
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={_BUSY_TIMEOUT_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("skillstream_read_only", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
