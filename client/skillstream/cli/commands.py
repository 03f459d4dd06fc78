"""Commands of the client: submit, tail, cancel, key, agents, queues, dev."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from skillstream.client import Client
from skillstream.task import Task
from skillstream_schemas.errors import InvalidRequest, ResultTimeout
from skillstream_schemas.event import FinalEvent
from skillstream_schemas.ids import check_name

from .dev import dev
from .exits import Exit, command, exit_of_state
from .following import Show, show
from .options import JsonOption, RedisOption, WideOption
from .output import is_person, note, write, write_json, write_rows
from .target import settings_from

_SILENT_S = 0.5


def register(app: typer.Typer) -> None:
    """Adds the client's commands."""
    app.command()(submit)
    app.command()(tail)
    app.command()(cancel)
    app.command()(key)
    app.command()(agents)
    app.command()(queues)
    app.command()(dev)


@command
async def submit(
    agent: str,
    skill: str,
    message: Annotated[str, typer.Argument(help="The message; - reads standard input.")],
    follow: Annotated[bool, typer.Option("--follow", help="Print the text: as it comes, or whole into a pipe.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print task_id and stream as JSON, then events with --follow.")] = False,
    task_id: Annotated[str | None, typer.Option(help="The task's id; the same one again runs nothing twice.")] = None,
    context: Annotated[str | None, typer.Option(help="Conversation that the task belongs to.")] = None,
    payer: Annotated[str | None, typer.Option(help="Account that is charged.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds until the task may start.")] = None,
    meta: Annotated[list[str] | None, typer.Option(help="Metadata, k=v; may be repeated.")] = None,
    redis: RedisOption = None,
) -> Exit:
    """Queue a task."""
    text = sys.stdin.read() if message == "-" else message
    async with Client(settings=settings_from(redis_url=redis)) as client:
        task = await client.submit(
            agent, skill, text, task_id=task_id, context_id=context, payer=payer, delay=delay, metadata=_metadata(meta or [])
        )
        if as_json:
            write_json({"task_id": task.id, "stream": task.stream})
        elif follow:
            note(f"task {task.id}")
        else:
            write(f"submitted {task.id}" if is_person() else task.id)
        if follow:
            return await show(task, Show.JSON if as_json else Show.TEXT)
    return Exit.OK


@command
async def tail(
    task: Annotated[str, typer.Argument(help="The task's id.")],
    after: Annotated[str, typer.Option(help="Id of the last event that is known already.")] = "0",
    text: Annotated[bool, typer.Option("--text", help="Only the text: as it comes, or whole into a pipe.")] = False,
    as_json: JsonOption = False,
    redis: RedisOption = None,
) -> Exit:
    """Follow a task to its final; the exit code tells the state."""
    how = Show.JSON if as_json else Show.TEXT if text else Show.LINES
    async with Client(settings=settings_from(redis_url=redis)) as client:
        return await show(client.task(task), how, after)


@command
async def cancel(
    task: Annotated[str, typer.Argument(help="The task's id.")],
    reason: Annotated[str, typer.Option(help="Why; stands in the final.")] = "",
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait for the worker; the task is canceled all the same.")
    ] = None,
    as_json: JsonOption = False,
    redis: RedisOption = None,
) -> Exit:
    """Cancel a task and show how it ended; exit code 3 where it is canceled."""
    async with Client(settings=settings_from(redis_url=redis)) as client:
        final = await _canceled(client.task(task), reason, timeout)
    write(final.model_dump_json(exclude_none=True) if as_json else final.state.value)
    return exit_of_state(final.state)


@command
async def key(task: Annotated[str, typer.Argument(help="The task's id.")], redis: RedisOption = None) -> None:
    """Print the key of a task's stream, for redis-cli."""
    write(settings_from(redis_url=redis).keys.events(check_name(task, "the task id")))


@command
async def agents(as_json: JsonOption = False, wide: WideOption = False, redis: RedisOption = None) -> None:
    """List agents, their skills and prices, and the workers seen."""
    async with Client(settings=settings_from(redis_url=redis)) as client:
        cards = await client.agents()
    rows = [
        (card.name, skill.name, skill.price_micros, skill.streaming, len(card.workers), skill.description)
        for card in sorted(cards.values(), key=lambda card: card.name)
        for skill in card.skills
    ]
    write_rows(
        ("agent", "skill", "price_micros", "streaming", "workers", "description"),
        rows,
        first=("agent", "skill", "workers"),
        as_json=as_json,
        wide=wide,
    )


@command
async def queues(as_json: JsonOption = False, redis: RedisOption = None) -> None:
    """List queues: jobs that may be claimed now, and jobs leased or delayed."""
    async with Client(settings=settings_from(redis_url=redis)) as client:
        rows = [(name, *await client.queue_depths(name)) for name in sorted(await client.agents())]
    write_rows(("agent", "due", "leased_or_delayed"), rows, first=("agent", "due", "leased_or_delayed"), as_json=as_json)


async def _canceled(task: Task, reason: str, timeout_s: float | None) -> FinalEvent:
    first_s = _SILENT_S if timeout_s is None else min(timeout_s, _SILENT_S)
    try:
        return await task.cancel(reason, timeout=first_s)
    except ResultTimeout:
        if timeout_s is not None and timeout_s <= first_s:
            raise
        note("cancellation recorded, waiting for the worker (Ctrl-C ends the waiting alone)")
    return await task.result(None if timeout_s is None else timeout_s - first_s)


def _metadata(pairs: list[str]) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidRequest(f"--meta {pair!r} is not of the form k=v")
        metadata[name] = value
    return metadata
