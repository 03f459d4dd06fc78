"""Printing: tables and colour for a person, plain lines for a pipe, JSON where asked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from skillstream_schemas.request import compact_json

from .table import STEERING, PersonTable, heading, shown

_PLAIN_BREAKS = str.maketrans({"\t": " ", "\n": " ", "\r": " "})


def is_person() -> bool:
    """True where standard output is a terminal."""
    return sys.stdout.isatty()


def printable(text: str) -> str:
    """Text as a terminal may have it: what an agent says must not steer it. A pipe gets it as it is."""
    return text.translate(STEERING) if is_person() else text


def console() -> Console:
    """rich's console on standard output."""
    return Console(highlight=False, soft_wrap=True)


def write(text: str, *, end: str = "\n") -> None:
    """Writes text to standard output at once."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def go_silent() -> None:
    """Has standard output lead nowhere, once its reader has gone: nothing is left to write or flush to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Writes a line for a person to standard error, beside the output."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def write_json(value: Mapping[str, Any]) -> None:
    """Writes one JSON object as a line."""
    write(json.dumps(value, ensure_ascii=False, default=str))


def write_rows(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, first: Sequence[str], as_json: bool = False, wide: bool = False
) -> None:
    """Writes rows: a table for a person, tab-separated lines for a pipe, one JSON object a line with `as_json`.

    A narrow terminal shows the columns of `first` and what fits beside them, all of them with `wide`.
    """
    if as_json:
        for row in rows:
            write_json(dict(zip(columns, row, strict=True)))
    elif is_person():
        PersonTable(columns, list(rows), first, wide=wide).print(console())
    else:
        for row in rows:
            write("\t".join(_plain(cell) for cell in row))


def write_record(record: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Writes the fields of one thing: name and value a line, nested values as JSON, or one JSON object."""
    if as_json:
        write_json(record)
        return
    present = {name: value for name, value in record.items() if value is not None}
    if is_person():
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in present.items():
            table.add_row(heading(name), Text(_json(value) if _is_nested(value) else shown(name, value)))
        console().print(table)
    else:
        for name, value in present.items():
            write(f"{name}\t{_plain(value)}")


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return (_json(value) if _is_nested(value) else str(value)).translate(_PLAIN_BREAKS)


def _is_nested(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple))


def _json(value: Any) -> str:
    return compact_json(value).translate(STEERING)
