"""Options that many commands have, each with its variable and its default."""

from __future__ import annotations

from typing import Annotated

import typer

RedisOption = Annotated[
    str | None,
    typer.Option(
        "--redis", help="URL of the broker.", metavar="URL", envvar="SKILLSTREAM_REDIS_URL",
        show_default="that of a running dev, else redis://127.0.0.1:6379/0",
    ),
]  # fmt: skip
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database", help="URL of the router's database.", metavar="URL", envvar="SKILLSTREAM_DATABASE_URL",
        show_default="that of a running dev, else of one that ran in this folder, else sqlite:///skillstream.db",
    ),
]  # fmt: skip
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
WideOption = Annotated[bool, typer.Option("--wide", help="All columns, however narrow the terminal is.")]
