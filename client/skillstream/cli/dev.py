"""`skillstream dev`: broker, worker and router in one command."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from skillstream_schemas.errors import MissingExtra
from skillstream_schemas.settings import without_secret

from .embedded import EmbeddedValkey
from .exits import Exit, command
from .output import write
from .target import claim_folder, environment_of, publish_running, settings_from, withdraw_running

_HOST, _HTTP_PORT = "127.0.0.1", 8000
_STOP_S = 50.0
_CHUNK_BYTES = 64 * 1024
_LINE_BYTES = 4000


@command
async def dev(
    targets: Annotated[list[str], typer.Argument(help="Agents, as MODULE:AGENT.", metavar="MODULE:AGENT...")],
    redis: Annotated[str | None, typer.Option("--redis", help="A server of your own instead of the embedded one.")] = None,
    data: Annotated[Path, typer.Option(help="Where broker and database keep their data.")] = Path(".skillstream"),
    http: Annotated[str | None, typer.Option(help="Where HTTP is answered.", metavar="HOST:PORT")] = None,
) -> Exit:
    """Run a broker, a worker and a router that answers HTTP; Ctrl-C stops them together."""
    data.mkdir(parents=True, exist_ok=True)
    claim_folder(data)
    database_url = f"sqlite:///{(data / 'skillstream.db').resolve()}"
    with ExitStack() as stack:
        url = redis or os.environ.get("SKILLSTREAM_REDIS_URL")
        url = url or stack.enter_context(EmbeddedValkey(data.resolve() / "valkey")).url
        settings = settings_from(redis_url=url, database_url=database_url, http=http)
        address = settings.http or _free_address()
        publish_running(settings)
        stack.callback(withdraw_running)
        write(f"broker   {without_secret(settings.redis_url)}")
        write(f"database {database_url}")
        router = ["router", "--no-http"] if address is None else ["router", "--http", address]
        return await _run_together({"worker": ["worker", *targets], "router": router}, environment_of(settings))


def _free_address() -> str | None:
    """Where HTTP is answered unless told otherwise; None where its extra is not installed."""
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        return None
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, _HTTP_PORT))
        except OSError:
            return f"{_HOST}:0"
    return f"{_HOST}:{_HTTP_PORT}"


async def _run_together(commands: dict[str, list[str]], env: dict[str, str]) -> Exit:
    """Runs processes until a signal comes or one of them ends, then stops them all."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    processes = {name: await _start(arguments, env) for name, arguments in commands.items()}
    printing = [asyncio.create_task(_print(name, process)) for name, process in processes.items()]
    ends = [asyncio.create_task(process.wait()) for process in processes.values()]
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, *ends], return_when=asyncio.FIRST_COMPLETED)
    ended_early = [name for name, process in processes.items() if process.returncode is not None]
    await asyncio.gather(*(_stop(process) for process in processes.values()))
    await asyncio.gather(*printing)
    stopping.cancel()
    if ended_early and not stop.is_set():
        for name in ended_early:
            write(f"{name} ended by itself with exit code {processes[name].returncode}; all is stopped")
        return Exit.FAILED
    return Exit.OK


async def _start(arguments: list[str], env: dict[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "skillstream", *arguments, "--until-eof", env=env,
            stdin=asyncio.subprocess.PIPE,  # it closes when this process dies, by which the other one hears of it
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C comes to us alone, and we stop them in order
        )  # fmt: skip
    except OSError as error:
        raise MissingExtra(f"{arguments[0]} cannot be started: {error}") from None


async def _print(name: str, process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    line = b""
    # by chunks: a line may be longer than a stream reader takes, and a process whose output nobody reads stands still
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        *lines, line = (line + chunk).split(b"\n")
        for whole in lines:
            write(f"{name:<8} {_shown(whole)}")
        line = line[:_CHUNK_BYTES]
    if line:
        write(f"{name:<8} {_shown(line)}")


def _shown(line: bytes) -> str:
    return line[:_LINE_BYTES].decode(errors="replace").rstrip() + (" …" if len(line) > _LINE_BYTES else "")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
