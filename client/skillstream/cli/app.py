"""Puts the command line together from what is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from importlib.metadata import version as metadata_version
from typing import Annotated

import typer

from skillstream_schemas.errors import MissingExtra
from skillstream_schemas.settings import Settings

from .output import note, write

_OTHER_VARIABLES = (
    "SKILLSTREAM_LOG_LEVEL", "SKILLSTREAM_HUB_KEY", "SKILLSTREAM_AGENTVERSE_SEED", "SKILLSTREAM_AGENTVERSE_KEY",
    "SKILLSTREAM_CHAT_KEY", "SKILLSTREAM_CHAT_BRIDGE",
)  # fmt: skip
_GROUP = "skillstream.commands"


def build() -> tuple[typer.Typer, list[str]]:
    """The command line, and the extras whose commands are missing because their packages are."""
    app = typer.Typer(
        name="skillstream",
        help="Run AI agents' skills on Redis workers and stream what they produce.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main)
    parts = sorted(entry_points(group=_GROUP), key=lambda part: part.name)
    return app, [part.name for part in parts if not _register(part, app)]


def run() -> None:
    """Runs the command line of this process."""
    app, missing = build()
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    known |= {group.name or "" for group in app.registered_groups}
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    if missing and asked and not asked.startswith("-") and asked not in known:
        extras = ",".join(missing)
        sys.stderr.write(
            f"missing_extra: {asked!r} is no command of what is installed; "
            f"not installed: {extras} (pip install 'skillstream[{extras}]')\n"
        )
        raise SystemExit(2)
    if not {"--until-eof", "--check"} & set(sys.argv):  # who started this process has said it
        for text in unknown_variables(os.environ):
            note(text)
    app()


def unknown_variables(env: Mapping[str, str]) -> list[str]:
    """A warning for each variable that looks like ours and sets nothing."""
    known = {*Settings.variables(), *_OTHER_VARIABLES}
    warnings = []
    for name in sorted(env):
        if name.startswith("SKILLSTREAM_") and name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            warnings.append(f"warning: {name} is no setting and is not read{meant}")
    return warnings


def _say_version(asked: bool) -> None:
    if asked:
        write(f"skillstream {metadata_version('skillstream')}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_say_version)
    ] = False,
) -> None:
    pass


def _register(part: EntryPoint, app: typer.Typer) -> bool:
    try:
        register = part.load()
    except MissingExtra:
        return False
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("skillstream"):
            raise
        return False
    register(app)
    return True
