"""Commands of the connectors: `connect hub`, `connect agentverse`."""

from __future__ import annotations

import logging
import os
from collections.abc import Coroutine
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from skillstream.cli.exits import Exit, command
from skillstream.cli.options import RedisOption
from skillstream.cli.output import write
from skillstream.cli.process import Stoppable, log_to_stderr, run_until_told
from skillstream.cli.target import settings_from
from skillstream_schemas.errors import InvalidSettings, MissingExtra

AgentOption = Annotated[
    list[str] | None,
    typer.Option("--agent", help="AGENT or AGENT/SKILL to offer; may be repeated. Without: all known.", metavar="AGENT[/SKILL]"),
]
PayerOption = Annotated[str | None, typer.Option(help="Account that is charged for what comes from there.")]


def register(app: typer.Typer) -> None:
    """Adds the connectors' commands."""
    connect = typer.Typer(help="Offer agents of this broker to other agent networks.", no_args_is_help=True)
    connect.command()(hub)
    connect.command()(agentverse)
    app.add_typer(connect, name="connect")


@command
async def hub(
    url: Annotated[str, typer.Argument(help="ws:// or wss:// URL of the hub.", metavar="URL")],
    agent: AgentOption = None,
    key_file: Annotated[Path | None, typer.Option(help="File with the key; else SKILLSTREAM_HUB_KEY.")] = None,
    api: Annotated[str, typer.Option(help="URL of the hub's HTTP interface; by default the same host.", metavar="URL")] = "",
    payer: PayerOption = None,
    visibility: Annotated[str, typer.Option(help="How the hub lists the agents.")] = "private",
    redis: RedisOption = None,
) -> Exit:
    """Offer agents at a Society hub, until SIGTERM or SIGINT."""
    module = _import("skillstream_router.connect.hub", "router")
    address = module.HubAddress(url, _secret("SKILLSTREAM_HUB_KEY", key_file), api)
    running = module.HubConnector(address, agent or (), settings_from(redis_url=redis), payer=payer, visibility=visibility)

    async def ready() -> None:
        await running.until_registered()
        write(f"connected {', '.join(running.agents)} to the hub")

    return await _run(running, ready())


@command
async def agentverse(
    agent: AgentOption = None,
    listen: Annotated[str, typer.Option(help="Where envelopes are taken.", metavar="HOST:PORT")] = "127.0.0.1:8001",
    seed_file: Annotated[Path | None, typer.Option(help="File with the secret seed; else SKILLSTREAM_AGENTVERSE_SEED.")] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="Endpoint of a chat agent, instead of a look-up.", metavar="ADDRESS=URL")
    ] = None,
    endpoint: Annotated[
        str, typer.Option(help="Public URL of the bridge: registers the agents, with SKILLSTREAM_AGENTVERSE_KEY.", metavar="URL")
    ] = "",
    agentverse_url: Annotated[str, typer.Option(help="Another Agentverse than the public one.", metavar="URL")] = "",
    ask_key_file: Annotated[
        Path | None, typer.Option(help="File with the key of skills that ask chat agents; else SKILLSTREAM_CHAT_KEY.")
    ] = None,
    payer: PayerOption = None,
    redis: RedisOption = None,
) -> Exit:
    """Offer agents in the Agent Chat Protocol, until SIGTERM or SIGINT."""
    module = _import("skillstream_router.connect.agentverse", "uagents")
    host, port = _host_and_port(listen)
    peers = dict(_pair(text) for text in peer or ())
    seed, ask_key = _secret("SKILLSTREAM_AGENTVERSE_SEED", seed_file), _secret("SKILLSTREAM_CHAT_KEY", ask_key_file)
    key = os.environ.get("SKILLSTREAM_AGENTVERSE_KEY", "") if endpoint else ""
    address = module.ChatAddress(seed, host, port, peers, agentverse_url, endpoint, key, ask_key)
    running = module.ChatBridge(address, agent or (), settings_from(redis_url=redis), payer=payer)

    async def ready() -> None:
        await running.until_listening()
        for each in running.agents.values():
            write(f"agent {each.name} is {each.address}")
        write(f"envelopes are taken at {running.url}")

    return await _run(running, ready())


async def _run(running: Stoppable, announcing: Coroutine[Any, Any, None]) -> Exit:
    log_to_stderr()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    await run_until_told(running, announcing, "the broker, and who is to be connected")
    write("the connector has stopped")
    return Exit.OK


def _import(name: str, extra: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra.of(error, "this connector needs", extra) from None


def _secret(variable: str, file: Path | None) -> str:
    if file is None:
        return os.environ.get(variable, "")
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"{file} cannot be read: {type(error).__name__}") from None


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise InvalidSettings(f"--listen {text} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _pair(text: str) -> tuple[str, str]:
    address, equals, url = text.partition("=")
    if not equals:
        raise InvalidSettings(f"--peer {text[:100]} is not ADDRESS=URL")
    return address, url
