"""The router's commands, as processes."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator

import pytest
from typer.testing import CliRunner

from skillstream.cli.app import build
from skillstream_router.store import Store, TaskRecord, Turns
from skillstream_schemas.settings import Settings
from skillstream_schemas.state import TaskState
from tests.support.processes import Process

from .eventually import eventually
from .feed import Feed
from .ledger_file import LedgerFile


@pytest.fixture
async def filled(ledger_file: LedgerFile) -> AsyncIterator[LedgerFile]:
    """A database with a conversation of two tasks, and an open one."""
    store = await Store(Settings(database_url=ledger_file.url)).open()
    for number in (1, 2):
        record = TaskRecord(
            id=f"t{number}", state=TaskState.COMPLETED, agent="poet", skill="rhyme", submitted_at=number, attempt=1, payer="acme",
            price_micros=50_000, context_id="chat", finished_at=10 + number, last_event_id="1-2", metadata='{"n":1}',
        )  # fmt: skip
        await store.apply([Turns(record, "a\tb", f"line\n{number}")])
    await store.apply(
        [Turns(TaskRecord(id="t3", state=TaskState.SUBMITTED, agent="cook", skill="x", submitted_at=3), None, None)]
    )
    yield ledger_file
    await store.close()


def run(database: LedgerFile, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build()[0], [*arguments, "--database", database.url])
    return result.exit_code, result.stdout, result.stderr


def test_tasks_are_listed_newest_first(filled: LedgerFile) -> None:
    code, out, _ = run(filled, "tasks", "--json")
    assert code == 0
    listed = [json.loads(line) for line in out.splitlines()]
    assert [(task["id"], task["price_micros"], task["charged_micros"]) for task in listed] == [
        ("t3", 0, 0), ("t2", 50_000, 50_000), ("t1", 50_000, 50_000),
    ]  # fmt: skip
    assert [line.split("\t")[:3] for line in run(filled, "tasks", "--agent", "poet", "--limit", "1")[1].splitlines()] == [
        ["t2", "completed", "poet"]
    ]
    assert run(filled, "tasks", "--state", "submitted")[1].startswith("t3\t")


def test_a_task_is_shown_with_its_text(filled: LedgerFile) -> None:
    code, out, _ = run(filled, "show", "t1", "--json")
    shown = json.loads(out)
    assert code == 0
    assert (shown["state"], shown["text"], shown["metadata"], shown["price_micros"]) == ("completed", "line\n1", {"n": 1}, 50_000)
    assert shown["charged_micros"] == 50_000
    assert "text\tline 1" in run(filled, "show", "t1")[1].splitlines()


@pytest.fixture
async def with_a_failure(ledger_file: LedgerFile) -> LedgerFile:
    """A database with a task that failed."""
    record = TaskRecord(
        id="t1", state=TaskState.FAILED, agent="poet", skill="rhyme", submitted_at=1, payer="acme", price_micros=50_000,
        finished_at=2,
    )  # fmt: skip
    store = await Store(Settings(database_url=ledger_file.url)).open()
    await store.apply([Turns(record, "a", "b")])
    await store.close()
    return ledger_file


def test_what_was_not_completed_is_not_charged(with_a_failure: LedgerFile) -> None:
    task = json.loads(run(with_a_failure, "tasks", "--json")[1])
    assert (task["price_micros"], task["charged_micros"]) == (50_000, 0)


def test_a_state_that_there_is_not_is_told_with_those_that_are(filled: LedgerFile) -> None:
    code, _, err = run(filled, "tasks", "--state", "done")
    assert code == 2
    assert all(state.value in err for state in TaskState)


def test_an_unknown_task_is_a_coded_error(filled: LedgerFile) -> None:
    code, out, err = run(filled, "show", "nobody")
    assert (code, out) == (1, "")
    assert err.startswith("unknown_task: ")


def test_what_nobody_knows_is_noted_beside_the_empty_list(filled: LedgerFile) -> None:
    assert run(filled, "history", "nobody") == (0, "", "there are no messages of context nobody\n")
    code, out, err = run(filled, "statement", "acme")
    assert (code, out) == (0, "")
    assert err.startswith("there are no postings of account acme; accounts are payer:ID")


def test_a_conversation_is_printed_in_order(filled: LedgerFile) -> None:
    lines = run(filled, "history", "chat")[1].splitlines()
    assert [line.split("\t")[2:] for line in lines] == [
        ["t1", "user", "a b"],
        ["t1", "agent", "line 1"],
        ["t2", "user", "a b"],
        ["t2", "agent", "line 2"],
    ]


@pytest.mark.guarantee("G16")
def test_accounts_and_statements_agree(filled: LedgerFile) -> None:
    listed = [json.loads(line) for line in run(filled, "accounts", "--json")[1].splitlines()]
    assert [(account["account"], account["balance_micros"], account["balance_usd"]) for account in listed] == [
        ("agent:poet", 95_000, "0.095"),
        ("payer:acme", -100_000, "-0.10"),
        ("platform", 5_000, "0.005"),
    ]
    for account in listed:
        lines = [json.loads(line) for line in run(filled, "statement", account["account"], "--json")[1].splitlines()]
        assert sum(line["amount_micros"] for line in lines) == lines[-1]["balance_micros"] == account["balance_micros"]
        assert len(lines) == account["postings"]


def test_a_database_that_is_not_there_is_not_reachable(ledger_file: LedgerFile) -> None:
    code, _, err = run(ledger_file, "accounts")
    assert code == 4
    assert err.startswith("database_unavailable: ")
    assert "--database or SKILLSTREAM_DATABASE_URL" in err
    assert not ledger_file.path.exists()


def test_another_database_is_a_usage_error() -> None:
    result = CliRunner().invoke(build()[0], ["router", "--database", "postgresql://u:secret@h/d"])
    assert result.exit_code == 2
    assert result.stderr.startswith("invalid_settings: ")
    assert "secret" not in result.stderr


def test_a_broker_that_is_not_there_is_not_reachable(ledger_file: LedgerFile) -> None:
    arguments = ["router", "--redis", "redis://127.0.0.1:1/0", "--database", ledger_file.url]
    result = CliRunner().invoke(build()[0], arguments)
    assert result.exit_code == 4
    assert "broker_unavailable: " in result.stderr
    assert not ledger_file.path.exists()  # a database without a table would be taken for one with a fault


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_router_says_that_it_reads_and_stops_cleanly(
    router_settings: Settings, feed: Feed, ledger_file: LedgerFile, signum: signal.Signals
) -> None:
    environment = {"SKILLSTREAM_SHARDS": str(router_settings.shards)}
    arguments = ["router", "--redis", router_settings.redis_url, "--database", ledger_file.url]
    with Process(*arguments, env=environment) as router:
        assert router.wait_for("is ready").startswith("router ")
        feed.ended("t1")
        await eventually(lambda: feed.rings_left() == 0, "all rings are gone")
        router.send(signum)
        assert router.wait() == 0
    assert ledger_file.state("t1") == "completed"
