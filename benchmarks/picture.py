"""The picture beside the table: one panel a figure, one bar a contender, whiskers from the smallest to the largest round."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .measuring import Figure, Report, shown
from .processes import ROOT

PICTURE = ROOT / "docs" / "performance.png"
_COLUMNS = 3
_NAME_CHARS = 26
_LOGARITHMIC = 60
"""Bars that differ by more than this are drawn on a logarithmic axis."""
_OURS, _OTHERS, _CEILING = "#1f6feb", "#8b949e", "#d0d7de"


def draw(latest: Mapping[str, tuple[Report, dict[str, Any]]], file: Path = PICTURE) -> bool:
    """Draws every figure that has at least two bars; False where there is none. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(_panels(latest).items())
    if not panels:
        return False
    rows = math.ceil(len(panels) / _COLUMNS)
    figure, axes = pyplot.subplots(rows, _COLUMNS, figsize=(6 * _COLUMNS, 2.6 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, (title, bars) in zip(axes.flat, panels, strict=False):
        _draw_panel(axis, title, bars)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return True


def _panels(latest: Mapping[str, tuple[Report, dict[str, Any]]]) -> dict[str, list[Figure]]:
    panels: dict[str, list[Figure]] = {}
    for report, _ in latest.values():
        for figure in report.figures:
            panels.setdefault(f"{report.benchmark}: {figure.name}", []).append(figure)
    return {title: bars for title, bars in panels.items() if len(bars) > 1}


def _draw_panel(axis: Any, title: str, bars: list[Figure]) -> None:
    middles = [statistics.median(bar.samples) for bar in bars]
    whiskers = [
        [middle - min(bar.samples) for middle, bar in zip(middles, bars, strict=True)],
        [max(bar.samples) - middle for middle, bar in zip(middles, bars, strict=True)],
    ]
    names = [textwrap.fill(bar.contender, _NAME_CHARS) for bar in bars]
    colours = [_colour(bar) for bar in bars]
    axis.barh(names, middles, xerr=whiskers, color=colours, ecolor="#57606a", capsize=2, height=min(0.8, 0.16 * len(bars)))
    if max(middles) > _LOGARITHMIC * min(middles) > 0:
        axis.set_xscale("log")
    axis.invert_yaxis()
    axis.set_title(title, fontsize=10, loc="left")
    axis.set_xlabel(bars[0].unit, fontsize=8)
    axis.tick_params(labelsize=8)
    if axis.get_xscale() == "linear":
        axis.locator_params(axis="x", nbins=5)
        axis.ticklabel_format(axis="x", style="plain")
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0.15)
    for place, (middle, bar) in enumerate(zip(middles, bars, strict=True)):
        axis.annotate(
            shown(middle), (max(bar.samples), place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )


def _colour(bar: Figure) -> str:
    if "skillstream" in (*bar.contender.split(",")[:1], *bar.name.split()[:1]):
        return _OURS
    return _CEILING if bar.contender.startswith("ceiling") else _OTHERS
