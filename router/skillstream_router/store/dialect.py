"""The one place that knows which database it is: the engine, its settings, and the INSERT that can do nothing or update."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    TableValuedAlias,
    Text,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    literal_column,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.sql.dml import ReturningInsert

from skillstream_schemas.errors import InvalidSettings
from skillstream_schemas.settings import without_secret

__all__ = ["READ_ONLY", "ManyRows", "database_file", "insert", "json_object", "listed", "make_engine", "utf8_bytes"]

READ_ONLY = {"skillstream_read_only": True}
"""Execution options of a connection that only reads."""

_BUSY_TIMEOUT_MS = 5000
_PRAGMAS = (
    "page_size=8192",  # of a new file: a batch writes fewer pages, each with its checksum
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    # a batch of long texts does not spill into the log before its commit, and the log is copied back each 16 MiB, not each 4
    "cache_size=-16384",
    "wal_autocheckpoint=2048",
)
_MAX_PARAMETERS = 32_766
"""SQLite takes no more in one statement."""
_FEW_ROWS = 32
_KEPT_STATEMENTS = 256


class ManyRows:
    """Responsible for inserting many rows with one statement, at little cost each.

    The statement is compiled once and its row of parameters repeated; values go to the driver as they are, in the order
    of `columns`. SQLAlchemy's own handling took half the time of a batch, and a statement a row hands the interpreter's
    lock back and forth with the event loop. Many rows go as powers of two and a rest of few: SQLite reads a statement in
    four times the time of running it, and of so few forms the driver keeps each as it was read.
    """

    def __init__(self, statement: Insert | ReturningInsert[Any], columns: Sequence[str]) -> None:
        compiled = statement.compile(dialect=sqlite.dialect(), column_keys=list(columns))
        assert compiled.positiontup == list(columns), "parameters outside of the row"
        self._row = f"({', '.join('?' * len(columns))})"
        self._head, self._tail = str(compiled).split(f"VALUES {self._row}")
        self._most = 1 << (_MAX_PARAMETERS // len(columns)).bit_length() - 1
        self._forms: dict[int, str] = {}

    def __call__(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Inserts rows; gives the first column of what the statement returns."""
        returned: list[Any] = []
        start = 0
        while left := len(rows) - start:
            count = left if left < _FEW_ROWS else min(1 << left.bit_length() - 1, self._most)
            some = rows[start : start + count]
            result = connection.exec_driver_sql(self._form(count), tuple(chain.from_iterable(some)))
            if result.returns_rows:
                returned += result.scalars().all()
            start += count
        return returned

    def _form(self, count: int) -> str:
        """The statement for so many rows."""
        if count not in self._forms:
            self._forms[count] = f"{self._head}VALUES {', '.join([self._row] * count)}{self._tail}"
        return self._forms[count]


def listed(parameter: str) -> TableValuedAlias:
    """A table of one column `value`, from a parameter that is a JSON list."""
    return func.json_each(bindparam(parameter, type_=Text)).table_valued("value", name=parameter)


def json_object(**columns: ColumnElement[Any]) -> ColumnElement[str]:
    """The JSON text of an object, made by the database: beside the interpreter's lock."""
    parts = (part for name, column in columns.items() for part in (literal_column(f"'{name}'"), column))
    return func.json_object(*parts, type_=Text)


def utf8_bytes(text: ColumnElement[str]) -> ColumnElement[int]:
    """The length of a text in UTF-8 bytes."""
    return func.length(cast(text, LargeBinary))


def make_engine(database_url: str) -> Engine:
    """An engine for the database of these settings; nothing is opened yet. Raises InvalidSettings for any but SQLite files."""
    url = _checked(database_url)
    # the errors' texts reach logs: what users said and pay stays out of them
    engine = create_engine(url, hide_parameters=True, connect_args={"cached_statements": _KEPT_STATEMENTS})
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
    if not url.database or url.database == ":memory:" or url.host or url.username:
        raise InvalidSettings(f"database_url {shown} names no file")
    return url


def _prepare(connection: Any, _record: object) -> None:
    # the driver's own BEGIN comes late and DEFERRED: a transaction that reads first could then not wait for its write lock
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (*_PRAGMAS, f"busy_timeout={_BUSY_TIMEOUT_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("skillstream_read_only", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
