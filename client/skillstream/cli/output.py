"""Printing: tables and colour for a person, plain lines for a pipe, JSON where asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

_STEERING = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_PLAIN_BREAKS = str.maketrans({"\t": " ", "\n": " ", "\r": " "})


def is_person() -> bool:
    """True where standard output is a terminal."""
    return sys.stdout.isatty()


def printable(text: str) -> str:
    """Text as a terminal may have it: what an agent says must not steer it. A pipe gets it as it is."""
    return text.translate(_STEERING) if is_person() else text


def console() -> Console:
    """rich's console on standard output."""
    return Console(highlight=False, soft_wrap=True)


def write(text: str, *, end: str = "\n") -> None:
    """Writes text to standard output at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def note(text: str) -> None:
    """Writes a line for a person to standard error, beside the output."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def write_json(value: Mapping[str, Any]) -> None:
    """Writes one JSON object as a line."""
    write(json.dumps(value, ensure_ascii=False, default=str))


def write_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool = False, title: str = "") -> None:
    """Writes rows: a table for a person, tab-separated lines for a pipe, one JSON object a line with `as_json`."""
    if as_json:
        for row in rows:
            write_json(dict(zip(columns, row, strict=True)))
    elif is_person():
        table = Table(*columns, title=title or None, title_justify="left", header_style="bold")
        for row in rows:
            table.add_row(*("" if cell is None else str(cell) for cell in row))
        console().print(table)
    else:
        for row in rows:
            write("\t".join("" if cell is None else str(cell).translate(_PLAIN_BREAKS) for cell in row))


def write_record(record: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Writes the fields of one thing: name and value a line, or one JSON object."""
    if as_json:
        write_json(record)
        return
    shown = {name: value for name, value in record.items() if value is not None}
    if is_person():
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        for name, value in shown.items():
            table.add_row(f"[bold]{name}[/bold]", str(value))
        console().print(table)
    else:
        for name, value in shown.items():
            write(f"{name}\t{str(value).translate(_PLAIN_BREAKS)}")
