"""The table in docs/performance.md, between its two markers, from the last whole run of each benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .machine import sentence
from .measuring import Ratio, Report
from .processes import ROOT

PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures: written by `make bench` -->", "<!-- end of the figures -->"
Latest = Mapping[str, tuple[Report, dict[str, Any]]]


def write_table(latest: Latest, page: Path = PAGE) -> None:
    """Puts the figures between the markers; raises ValueError where the page has none."""
    text = page.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} lacks the line {BEGIN} or {END}")
    page.write_text(f"{head}{BEGIN}\n\n" + "\n".join(_lines(latest)) + f"\n\n{END}{tail}")


def _lines(latest: Latest) -> Iterator[str]:
    yield "### Ratios"
    yield ""
    yield "Median of the rounds (smallest–largest); both sides of a ratio are of the same round."
    yield ""
    yield "| what | compared with | measured | target | |"
    yield "|---|---|---|---|---|"
    for report, _ in latest.values():
        for ratio in report.ratios:
            yield f"| {ratio.name} | {ratio.against or '–'} | {ratio} | {ratio.target or '–'} | {_verdict(ratio)} |"
    yield ""
    yield "### Figures"
    yield ""
    yield "| benchmark | figure | who | measured |"
    yield "|---|---|---|---|"
    for report, _ in latest.values():
        for figure in report.figures:
            yield f"| {report.benchmark} | {figure.name} | {figure.contender} | {figure} |"
    if notes := [f"{report.benchmark}: {note}" for report, _ in latest.values() for note in report.notes]:
        yield ""
        yield from (f"- {re.sub('[|<>]', ' ', note)}" for note in notes)
    yield ""
    yield "### Machine and commands"
    for described, runs in _by_machine(latest).items():
        yield ""
        yield described
        yield ""
        yield from (f"- `{command}`: {', '.join(names)}" for command, names in runs.items())


def _verdict(ratio: Ratio) -> str:
    if ratio.target is None:
        return ""
    return "met" if ratio.target.is_met(ratio.median) else "**missed**"


def _by_machine(latest: Latest) -> dict[str, dict[str, list[str]]]:
    """Which benchmarks ran where and by which command, with the day."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, (_, line) in latest.items():
        runs = found.setdefault(sentence(line["machine"]), {})
        runs.setdefault(line["command"], []).append(f"{name} ({line['at'].partition('T')[0]})")
    return found
