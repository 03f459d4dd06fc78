"""Tables for a person: what is copied stands whole, and a narrow terminal gets fewer columns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from textwrap import wrap
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from skillstream_schemas.money import micros_to_usd

_GAP = 2
_FOLDED = frozenset({"text", "description", "error", "label"})
_FOLDED_WIDTH = 12
_BEGINNINGS = frozenset({"at", "submitted_at", "created_at"})
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


class PersonTable:
    """Responsible for one table: picks the columns that fit, says which it left out, and cuts nothing.

    `first` names the columns that stand in any terminal; all do where they fit, and with `wide`. Times (`at`, `…_at`) are
    unix ms and shown as local time, or as an age where that is too wide; amounts (`…_micros`) are shown in USD. Texts are
    folded, everything else stands on one line.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], first: Sequence[str], *, wide: bool) -> None:
        kept = [index for index, name in enumerate(columns) if not _is_told_twice(name, columns)]
        self._columns = [columns[index] for index in kept]
        self._rows = [[row[index] for index in kept] for row in rows]
        self._first, self._wide = first, wide

    def print(self, console: Console) -> None:
        """Prints the table; a terminal that is narrower than the ids wraps its lines itself."""
        times_as_ages = not (self._wide or self._width(range(len(self._columns)), ages=False) <= console.width)
        chosen = self._chosen(console.width) if times_as_ages else list(range(len(self._columns)))
        table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="bold", pad_edge=False)
        for index in chosen:
            name = self._columns[index]
            table.add_column(heading(name, age=times_as_ages), no_wrap=name not in _FOLDED, overflow="fold")
        for row in self._rows:
            table.add_row(*(Text(shown(self._columns[index], row[index], age=times_as_ages)) for index in chosen))
        console.width = max(console.width, self._width(chosen, ages=times_as_ages))
        console.print(table, soft_wrap=False)
        left_out = [name for index, name in enumerate(self._columns) if index not in chosen]
        if left_out:
            console.print(Text("\n".join(wrap(f"not shown: {', '.join(left_out)} (--wide)", console.width)), style="dim"))

    def _chosen(self, width: int) -> list[int]:
        chosen = [index for index, name in enumerate(self._columns) if name in self._first]
        for index in range(len(self._columns)):
            if index not in chosen and self._width((*chosen, index), ages=True) <= width:
                chosen.append(index)
        return sorted(chosen)

    def _width(self, chosen: Sequence[int], *, ages: bool) -> int:
        return sum(self._cells(index, ages=ages) + _GAP for index in chosen)

    def _cells(self, index: int, *, ages: bool) -> int:
        name = self._columns[index]
        texts = [shown(name, row[index], age=ages) for row in self._rows]
        longest = max((cell_len(line) for text in texts for line in text.splitlines()), default=0)
        if name in _FOLDED:
            longest = min(longest, _FOLDED_WIDTH)
        return max(longest, cell_len(heading(name, age=ages)))


def heading(name: str, *, age: bool = False) -> str:
    """What stands over a column."""
    if age and name in _BEGINNINGS:
        return "age"
    return name.removesuffix("_at") if name.endswith("_at") else name.replace("_micros", "_usd")


def shown(name: str, value: Any, *, age: bool = False) -> str:
    """A value as a person reads it: local time or age, USD, and no characters that steer the terminal."""
    if value is None:
        return ""
    if isinstance(value, int) and (name == "at" or name.endswith("_at")):
        if age:
            return _age(time.time() - value / 1000)
        return datetime.fromtimestamp(value / 1000).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, int) and name.endswith("_micros"):
        return micros_to_usd(value)
    return str(value).translate(STEERING)


STEERING = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""What a terminal obeys instead of showing it."""


def _is_told_twice(name: str, columns: Sequence[str]) -> bool:
    """True for an amount that stands in another column in USD."""
    return name.endswith("_micros") and name.replace("_micros", "_usd") in columns


def _age(age_s: float) -> str:
    for unit_s, unit in _UNITS:
        if age_s >= unit_s:
            return f"{age_s / unit_s:.0f}{unit}"
    return f"{max(0, age_s):.0f}s"
