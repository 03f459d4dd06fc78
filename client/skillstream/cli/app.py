"""Puts the command line together from what is installed."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points

import typer

from skillstream_schemas.errors import MissingExtra

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
    app()


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
