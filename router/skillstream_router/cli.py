"""Commands of the router: `router`, and what people ask its database."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from skillstream.cli.exits import Exit, command
from skillstream.cli.options import DatabaseOption, JsonOption, RedisOption, WideOption
from skillstream.cli.output import note, write, write_record, write_rows
from skillstream.cli.process import UntilEof, calm_garbage_collector, log_to_stderr, run_until_told, when_parent_ends
from skillstream.cli.target import database_settings, settings_from
from skillstream_schemas.gateway_errors import AddressInUse
from skillstream_schemas.ids import check_name
from skillstream_schemas.money import micros_to_usd
from skillstream_schemas.settings import without_secret
from skillstream_schemas.state import TaskState

from . import keys_cli
from .app import Router
from .store import Reports

_TASK_COLUMNS = (
    "id", "state", "agent", "skill", "attempt", "price_micros", "charged_micros", "payer", "context_id",
    "submitted_at", "finished_at", "error",
)  # fmt: skip
_TASK_FIRST = ("id", "state", "skill", "submitted_at", "error")
_POSTING_FIRST = ("task_id", "kind", "amount_micros", "balance_micros")


def register(app: typer.Typer) -> None:
    """Adds the router's commands."""
    for function in (router, show, tasks, history, accounts, statement):
        app.command()(function)
    app.add_typer(keys_cli.commands(), name="keys")


@command
async def router(
    redis: RedisOption = None,
    database: DatabaseOption = None,
    http: Annotated[str | None, typer.Option("--http", help="Answer HTTP here.", metavar="HOST:PORT")] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Answer no HTTP, whatever the environment says.")] = False,
    or_free_port: Annotated[
        bool, typer.Option("--or-free-port", help="Answer HTTP at a free port where another process has that one.")
    ] = False,
    until_eof: UntilEof = False,
) -> Exit:
    """Run a router: state, history and payment of all tasks, until SIGTERM or SIGINT."""
    log_to_stderr()
    settings = settings_from(redis_url=redis, database_url=database, http=http)
    settings = settings.changed(http=None) if no_http else settings
    try:
        await _run(Router(settings), until_eof=until_eof)
    except AddressInUse:
        if not or_free_port or settings.http_address is None:
            raise
        host, port = settings.http_address
        write(f"port {port} is in use by another process: a free one is taken instead")
        await _run(Router(settings.changed(http=f"{host}:0")), until_eof=until_eof)
    return Exit.OK


@command
async def show(
    task: Annotated[str, typer.Argument(help="The task's id.")], database: DatabaseOption = None, as_json: JsonOption = False
) -> Exit:
    """Show a task as the router's database has it, with its text once it is final."""
    async with _reports(database) as reports:
        record, text, charged_micros = await reports.task(check_name(task, "the task id"))
    write_record({**record.shown(), "charged_micros": charged_micros, "text": text}, as_json=as_json)
    return Exit.OK


@command
async def tasks(
    agent: Annotated[str | None, typer.Option(help="Only tasks of this agent.")] = None,
    state: Annotated[TaskState | None, typer.Option(help="Only tasks in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, newest first.")] = 50,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> Exit:
    """List the tasks submitted last, newest first."""
    async with _reports(database) as reports:
        found = await reports.tasks(agent, state, limit)
    told = ({**record._asdict(), "charged_micros": charged_micros} for record, charged_micros in found)
    rows = ([task[name] for name in _TASK_COLUMNS] for task in told)
    write_rows(_TASK_COLUMNS, rows, first=_TASK_FIRST, as_json=as_json, wide=wide)
    return Exit.OK


@command
async def history(
    context: Annotated[str, typer.Argument(help="The conversation's context id.")],
    database: DatabaseOption = None,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> Exit:
    """Print the messages of a conversation in the order in which its tasks ended."""
    async with _reports(database) as reports:
        messages = await reports.history(check_name(context, "the context id"))
    if not messages:
        note(f"there are no messages of context {context}")
    rows = ((message.id, message.at, message.task_id, message.role, message.text) for message in messages)
    write_rows(("id", "at", "task_id", "role", "text"), rows, first=("task_id", "role", "text"), as_json=as_json, wide=wide)
    return Exit.OK


@command
async def accounts(database: DatabaseOption = None, as_json: JsonOption = False) -> Exit:
    """List all accounts and their balances."""
    async with _reports(database) as reports:
        found = await reports.accounts()
    rows = ((account.name, account.balance_micros, micros_to_usd(account.balance_micros), account.postings) for account in found)
    write_rows(
        ("account", "balance_micros", "balance_usd", "postings"),
        rows,
        first=("account", "balance_usd", "postings"),
        as_json=as_json,
    )
    return Exit.OK


@command
async def statement(
    account: Annotated[str, typer.Argument(help="An account: payer:ID, agent:NAME or platform.")],
    database: DatabaseOption = None,
    as_json: JsonOption = False,
    wide: WideOption = False,
) -> Exit:
    """List the postings of an account, oldest first, with the running balance."""
    async with _reports(database) as reports:
        found = await reports.statement(account)
    if not found:
        note(f"there are no postings of account {account}; accounts are payer:ID, agent:NAME and platform")
    rows: list[tuple[Any, ...]] = [
        (line.id, line.at, line.task_id, line.kind, line.amount_micros, line.balance_micros) for line in found
    ]
    write_rows(
        ("id", "at", "task_id", "kind", "amount_micros", "balance_micros"), rows, first=_POSTING_FIRST, as_json=as_json, wide=wide
    )
    return Exit.OK


async def _run(running: Router, *, until_eof: bool) -> None:
    if until_eof:
        when_parent_ends(running.stop)
    broker, database = map(without_secret, (running.settings.redis_url, running.settings.database_url))
    await run_until_told(running, _announce(running), f"the broker at {broker} and the database {database}")
    write(f"router {running.name} has stopped")


async def _announce(running: Router) -> None:
    await running.until_reading()
    calm_garbage_collector()
    if running.http is not None:
        await running.http.until_serving()
        write(f"HTTP at {running.http.url}")
    write(f"router {running.name} is ready")


def _reports(database: str | None) -> Reports:
    return Reports(database_settings(database))
