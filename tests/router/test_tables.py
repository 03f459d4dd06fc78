"""The tables that a person sees: nothing that is copied is cut, and pipes get plain values."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
from typer.testing import CliRunner

from skillstream.cli import output
from skillstream.cli.app import build
from skillstream_router.store import Store, TaskRecord, Turns
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState

from .ledger_file import LedgerFile

TASK = "01a22dc1-4c58-71ea-b22d-a78b0b4570c8"
CONTEXT = "a-conversation-with-a-name-of-some-length"
FINISHED_MS = 1_796_063_972_464


@pytest.fixture
async def task_id(ledger_file: LedgerFile) -> AsyncIterator[str]:
    """A paid task in a database."""
    record = TaskRecord(
        id=TASK, state=TaskState.COMPLETED, agent="researcher", skill="research", attempt=1, payer="acme",
        submitted_at=time.time_ns() // 1_000_000 - 3 * 60_000, price_micros=50_000, context_id=CONTEXT,
        finished_at=FINISHED_MS, last_event_id="1-2", metadata='{"ok":true,"n":null}',
    )  # fmt: skip
    store = await Store(Settings(database_url=ledger_file.url)).open()
    await store.apply([Turns(record, "what of [bold]tides\x1b[2J?", "They come and go, " * 20)])
    yield TASK
    await store.close()


def run(database: LedgerFile, *arguments: str, columns: int | None = None) -> list[str]:
    """The lines that a command prints: to a terminal of so many columns, or to a pipe."""
    with pytest.MonkeyPatch.context() as patch:
        if columns is not None:
            patch.setattr(output, "is_person", lambda: True)
            patch.setenv("COLUMNS", str(columns))
        result = CliRunner().invoke(build()[0], [*arguments, "--database", database.url])
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("columns", [20, 60, 80, 100, 300])
@pytest.mark.parametrize("command", [("tasks",), ("history", CONTEXT), ("statement", "payer:acme")])
def test_ids_are_never_cut(ledger_file: LedgerFile, task_id: str, command: tuple[str, ...], columns: int) -> None:
    lines = run(ledger_file, *command, columns=columns)
    assert any(task_id in line for line in lines), lines
    if columns >= 80:
        assert max(map(len, lines)) <= columns
    if columns in (20, 300):
        assert any("--wide" in line for line in lines) == (columns == 20)


def test_a_narrow_terminal_gets_fewer_columns_and_ages(ledger_file: LedgerFile, task_id: str) -> None:
    lines = run(ledger_file, "tasks", columns=80)
    shown = dict(zip(lines[0].split(), lines[1].split(), strict=False))  # the error, at the end, is empty
    assert {"id": task_id, "state": "completed", "skill": "research", "age": "3m"}.items() <= shown.items()
    assert "payer" in " ".join(lines[2:])


def test_all_columns_where_they_are_asked_for(ledger_file: LedgerFile, task_id: str) -> None:
    (line,) = (line for line in run(ledger_file, "tasks", "--wide", columns=80) if task_id in line)
    when = datetime.fromtimestamp(FINISHED_MS / 1000).strftime("%Y-%m-%d %H:%M:%S")
    assert all(text in line for text in ("researcher", "0.05", "acme", CONTEXT, when))
    assert "50000" not in line


def test_a_pipe_gets_plain_values(ledger_file: LedgerFile, task_id: str) -> None:
    (line,) = run(ledger_file, "tasks")
    cells = line.split("\t")
    assert (cells[0], cells[5], cells[10]) == (task_id, "50000", str(FINISHED_MS))
    assert 'metadata\t{"ok":true,"n":null}' in run(ledger_file, "show", task_id)


def test_a_message_is_no_markup_and_steers_no_terminal(ledger_file: LedgerFile, task_id: str) -> None:
    shown = "\n".join(run(ledger_file, "history", CONTEXT, columns=200))
    assert "[bold]tides" in shown
    assert "\x1b[2J" not in shown


def test_accounts_are_told_in_dollars_to_a_person(ledger_file: LedgerFile, task_id: str) -> None:
    lines = run(ledger_file, "accounts", columns=80)
    assert lines[0].split() == ["account", "balance_usd", "postings"]
    assert ["payer:acme", "-0.05", "2"] in [line.split() for line in lines]
