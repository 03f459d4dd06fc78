"""The command `skillstream worker`."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Annotated, Any

import typer

from skillstream.breaking_off import finish_unless
from skillstream.cli.exits import Exit, exit_of_error
from skillstream.cli.options import RedisOption
from skillstream.cli.output import write
from skillstream.cli.process import (
    UntilEof,
    calm_garbage_collector,
    leave,
    log_to_stderr,
    run_loop,
    saying_what_takes_long,
    when_parent_ends,
    when_told,
)
from skillstream.cli.target import environment_of, settings_from
from skillstream_schemas.errors import SkillstreamError
from skillstream_schemas.settings import without_secret

from .app import Worker
from .loading import load_agent
from .processes import Processes

log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Adds the worker's command."""
    app.command()(worker)


def worker(
    targets: Annotated[list[str], typer.Argument(help="Agents, as MODULE:AGENT.", metavar="MODULE:AGENT...")],
    redis: RedisOption = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Tasks at once in each process.", show_default="SKILLSTREAM_CONCURRENCY, else 100")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=256, help="Worker processes.")] = 1,
    lease: Annotated[
        float | None,
        typer.Option(help="Seconds until a dead worker's task starts again.", show_default="SKILLSTREAM_LEASE_S, else 15"),
    ] = None,
    grace: Annotated[
        float | None, typer.Option(help="Seconds that running tasks get at a stop.", show_default="SKILLSTREAM_GRACE_S, else 30")
    ] = None,
    burst: Annotated[bool, typer.Option("--burst", help="End when nothing is left to claim.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Import the agents, say what is wrong, and end.")] = False,
    until_eof: UntilEof = False,
) -> None:
    """Run a worker: claim and run tasks until SIGTERM or SIGINT; a second signal hands all tasks back at once."""
    try:
        log_to_stderr()
        settings = settings_from(redis_url=redis, concurrency=concurrency, lease_s=lease, grace_s=grace)
        agents = [load_agent(target) for target in targets]
        running = Worker(agents, settings)
    except SkillstreamError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(int(exit_of_error(error))) from None
    if check:
        for agent in agents:
            write(f"agent {agent.name} can be run: {', '.join(agent.skills) or 'plain functions alone'}")
        raise typer.Exit(int(Exit.OK))
    if processes > 1:
        flags = ["--lease", str(settings.lease_s), "--grace", str(settings.grace_s), "--concurrency", str(settings.concurrency)]
        flags += ["--burst"] if burst else []
        command = [sys.executable, "-m", "skillstream", "worker", *targets, *flags, "--until-eof"]
        raise typer.Exit(run_loop(Processes(command, processes, environment_of(settings)).run()))
    raise typer.Exit(run_loop(_run(running, burst=burst, until_eof=until_eof)))


async def _run(worker: Worker, *, burst: bool, until_eof: bool) -> int:
    stop, again = asyncio.Event(), asyncio.Event()

    def told() -> None:
        if stop.is_set():
            again.set()
        stop.set()

    when_told(told)
    if until_eof:

        def orphaned() -> None:
            log.warning("the process that started this one has ended: all tasks are handed back")
            stop.set()
            again.set()

        when_parent_ends(orphaned)
    try:
        with saying_what_takes_long(f"the broker at {without_secret(worker.settings.redis_url)}"):
            has_started = await finish_unless(stop, worker.start())
    except SkillstreamError as error:
        sys.stderr.write(f"{error}\n")
        await worker.stop(grace_s=0)
        return int(exit_of_error(error))
    if not has_started:
        await worker.stop(grace_s=0)
        write(f"worker {worker.name} has stopped")
        return int(Exit.OK)
    calm_garbage_collector()
    write(f"worker {worker.name} is ready")
    ends: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
    if burst:
        ends.append(asyncio.create_task(worker.until_idle()))
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if worker.running and stop.is_set():
        tasks = f"{len(worker.running)} running task{'s' if len(worker.running) > 1 else ''}"
        write(f"waiting up to {worker.settings.grace_s:g} s for {tasks}; Ctrl-C again hands them back")
    stopping = asyncio.create_task(worker.stop())
    impatient = asyncio.create_task(again.wait())
    await asyncio.wait([stopping, impatient], return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        await worker.hand_back()
    await stopping
    for waiting in (*ends, impatient):
        waiting.cancel()
    write(f"worker {worker.name} has stopped")
    return await leave(int(Exit.OK), left_behind=len(worker.strays))
