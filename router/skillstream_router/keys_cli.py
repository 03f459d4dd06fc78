"""The commands `skillstream keys`: API keys of the HTTP gateway."""

from __future__ import annotations

from typing import Annotated

import typer

from skillstream.cli.exits import Exit, command
from skillstream.cli.options import DatabaseOption, JsonOption
from skillstream.cli.output import note, write, write_json, write_rows
from skillstream.cli.target import database_settings, settings_from
from skillstream.clock import Clock
from skillstream_schemas.errors import InvalidRequest
from skillstream_schemas.request import TaskRequest

from .store import GatewayStore

_COLUMNS = ("id", "payer", "label", "created_at", "revoked_at")


def commands() -> typer.Typer:
    """The group of commands."""
    group = typer.Typer(help="API keys of the HTTP gateway.", no_args_is_help=True)
    for function in (create, revoke):
        group.command()(function)
    group.command("list")(list_keys)
    return group


@command
async def create(
    payer: Annotated[str, typer.Option(help="Account that is charged for what is submitted with the key.")],
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> Exit:
    """Make a key and print it: it is shown this once, only its hash is kept."""
    TaskRequest.build({"agent": "-", "skill": "-", "message": "", "payer": payer}, settings_from().limits)
    if len(label) > 256 or not label.isprintable():
        raise InvalidRequest("the label has more than 256 characters, or some that cannot be printed")
    async with _store(database) as store:
        kept, key = await store.create_key(payer, label, Clock().now_ms())
    if as_json:
        write_json({"id": kept.id, "payer": payer, "key": key})
    else:
        write(key)
        note(f"key {kept.id} for {payer}: keep it now, it cannot be shown again")
    return Exit.OK


@command
async def list_keys(database: DatabaseOption = None, as_json: JsonOption = False) -> Exit:
    """List all keys, revoked ones too."""
    async with _store(database) as store:
        found = await store.keys()
    write_rows(_COLUMNS, ([getattr(key, name) for name in _COLUMNS] for key in found), first=_COLUMNS, as_json=as_json)
    return Exit.OK


@command
async def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.")], database: DatabaseOption = None
) -> Exit:
    """End a key; routers refuse it within a second."""
    async with _store(database) as store:
        await store.revoke_key(key_id, Clock().now_ms())
    write(f"revoked {key_id}")
    return Exit.OK


def _store(database: str | None) -> GatewayStore:
    return GatewayStore(database_settings(database))
