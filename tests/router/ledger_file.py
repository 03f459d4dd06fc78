"""The router's database as sqlite3 shows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class LedgerFile:
    """Responsible for reading a router's database from outside."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def rows(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """What a query finds; nothing while there are no tables yet."""
        connection = sqlite3.connect(self.path, timeout=10)
        try:
            return connection.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
        finally:
            connection.close()

    def task(self, task_id: str) -> dict[str, Any]:
        """The row of a task, {} while there is none."""
        connection = sqlite3.connect(self.path, timeout=10)
        connection.row_factory = sqlite3.Row
        try:
            row = connection.execute("SELECT * FROM tasks WHERE id = ?", (task_id,)).fetchone()
            return {} if row is None else dict(row)
        except sqlite3.OperationalError:
            return {}
        finally:
            connection.close()

    def state(self, task_id: str) -> str | None:
        """The state of a task, None while there is no row."""
        return self.task(task_id).get("state")

    def execute(self, sql: str) -> None:
        """Runs and commits one statement."""
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        connection.execute(sql)
        connection.close()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the write lock, as another process in a long transaction does."""
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()

    def balances(self) -> dict[str, int]:
        """The sum of postings of each account."""
        return dict(self.rows("SELECT account, sum(amount_micros) FROM postings GROUP BY account"))
