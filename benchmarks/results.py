"""Where results go: a line of JSON a run and benchmark, and the ratios that bench-quick compares with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .measuring import Ratio, Report, as_json, from_json, shown

HERE = Path(__file__).parent
FALL = 0.2
"""How much worse a ratio has to be to be reported."""
_OF_THE_MACHINE = frozenset({"tokens/s", "ms", "% of a core"})
"""Units of values that are no ratios and move with the machine: they are not compared."""


class Results:
    """Responsible for the kept results of whole runs: one file a benchmark in `folder`, a line added by each run."""

    def __init__(self, folder: Path = HERE / "results") -> None:
        self._folder = folder

    def add(self, report: Report, machine: Mapping[str, Any], *, command: str, is_whole: bool) -> None:
        """Appends a report; one of a small or short run is kept, and never shown."""
        self._folder.mkdir(exist_ok=True)
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": command, "is_whole": is_whole,
            "machine": machine, "report": as_json(report),
        }  # fmt: skip
        with (self._folder / f"{report.benchmark}.jsonl").open("a") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def latest(self, benchmarks: Iterable[str]) -> dict[str, tuple[Report, dict[str, Any]]]:
        """The last whole run of each benchmark, with its line; those that never ran are missing."""
        found = {}
        for name in benchmarks:
            file = self._folder / f"{name}.jsonl"
            lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
            if whole := [line for line in lines if line["is_whole"]]:
                found[name] = (from_json(whole[-1]["report"]), whole[-1])
        return found


class Reference:
    """Responsible for the ratios of the small forms that are kept in the repository."""

    def __init__(self, file: Path = HERE / "reference.json") -> None:
        self._file = file

    def keep(self, reports: Iterable[Report], machine: Mapping[str, Any]) -> None:
        """Keeps the ratios of a run as those to compare with, others of the file stay."""
        kept = self._kept()
        ratios = {name: round(ratio.median, 4) for name, ratio in _named(reports)}
        content = {"machine": {**machine, "peers": {}}, "ratios": kept.get("ratios", {}) | ratios}
        self._file.write_text(json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n")

    def fallen(self, reports: Iterable[Report]) -> list[str] | None:
        """Sentences on the ratios that are worse by a fifth or more; None where nothing is kept to compare with."""
        kept = self._kept().get("ratios", {})
        if not kept:
            return None
        return [
            f"{name}: {shown(ratio.median)} {ratio.unit}, was {shown(kept[name])}"
            for name, ratio in _named(reports)
            if name in kept and _is_worse(ratio, kept[name])
        ]

    def _kept(self) -> dict[str, Any]:
        kept: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}
        return kept


def _is_worse(ratio: Ratio, before: float) -> bool:
    if ratio.better == "lower":
        return ratio.median >= before * (1 + FALL) and ratio.median > before  # nothing lost is no worse than nothing lost
    return ratio.median <= before * (1 - FALL)


def _named(reports: Iterable[Report]) -> Iterable[tuple[str, Ratio]]:
    for report in reports:
        for ratio in report.ratios:
            if ratio.unit in _OF_THE_MACHINE:
                continue
            yield f"{report.benchmark}: {ratio.name}" + (f" / {ratio.against}" if ratio.against else ""), ratio
