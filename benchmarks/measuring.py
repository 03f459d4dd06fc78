"""Measuring in turns, and what comes out: figures, ratios of figures taken in the same round, a report."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .environments import Environments, NotInstalled
from .processes import ProcessEnded

Measure = Callable[[], Mapping[str, float]]
"""One measurement of one contender: values by the name of the figure."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one contender reached in each round."""

    name: str
    contender: str
    unit: str
    samples: tuple[float, ...]

    def __str__(self) -> str:
        return f"{spread(self.samples)} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Target:
    """A bound: at least, or at most where `is_ceiling`."""

    bound: float
    is_ceiling: bool = False

    def __str__(self) -> str:
        return f"{'≤' if self.is_ceiling else '≥'} {shown(self.bound)}"

    def is_met(self, value: float) -> bool:
        """Whether a value keeps the bound."""
        return value <= self.bound if self.is_ceiling else value >= self.bound


@dataclass(frozen=True, slots=True)
class Ratio:
    """A comparison, round by round; a single value without a comparison where `against` is empty.

    `better` says in which direction it improves, for bench-quick.
    """

    name: str
    against: str
    samples: tuple[float, ...]
    unit: str = "×"
    target: Target | None = None
    better: str = "higher"

    @property
    def median(self) -> float:
        """The middle of the rounds."""
        return statistics.median(self.samples)

    def __str__(self) -> str:
        return f"{spread(self.samples)} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Report:
    """What a benchmark found; `notes` say what was left out and why."""

    benchmark: str
    figures: tuple[Figure, ...]
    ratios: tuple[Ratio, ...]
    notes: tuple[str, ...] = ()


@dataclass
class Samples:
    """Values by contender and figure, in the order of rounds; `left_out` has contenders without values and the reason."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def of(self, contender: str, figure: str) -> tuple[float, ...]:
        """What a contender reached in each round; empty where it was left out."""
        return tuple(self.values.get(contender, {}).get(figure, ()))

    def figures(self, name: str, unit: str) -> list[Figure]:
        """This figure of all who have it."""
        have = ((contender, self.of(contender, name)) for contender in self.values)
        return [Figure(name, contender, unit, samples) for contender, samples in have if samples]

    def ratio(
        self, name: str, ours: str, theirs: str, *, figure: str, figure_of_theirs: str | None = None,
        target: Target | None = None, better: str = "higher",
    ) -> Iterator[Ratio]:  # fmt: skip
        """The ratio of two contenders in each round; nothing where one of them was left out."""
        pairs = list(zip(self.of(ours, figure), self.of(theirs, figure_of_theirs or figure), strict=False))
        if pairs and all(their for _, their in pairs):
            yield Ratio(name, theirs, tuple(our / their for our, their in pairs), target=target, better=better)

    def value(
        self, name: str, contender: str, figure: str, *, unit: str, target: Target | None = None, better: str = "lower"
    ) -> Iterator[Ratio]:
        """A figure that is judged by itself."""
        if samples := self.of(contender, figure):
            yield Ratio(name, "", samples, unit, target, better)

    @property
    def notes(self) -> tuple[str, ...]:
        """Who was left out and why, as sentences."""
        return tuple(f"{contender} was left out: {why}" for contender, why in self.left_out.items())


@dataclass(frozen=True, slots=True)
class Lab:
    """What a benchmark needs: how many rounds, how large, the environments of the peers, and where to say what it does.

    `is_quick` asks for the small form without peers.
    """

    rounds: int
    scale: float
    is_quick: bool
    environments: Environments
    say: Callable[[str], None]

    def size(self, full: int, quick: int) -> int:
        """A number of tasks or events for this run."""
        return max(10, round((quick if self.is_quick else full) * self.scale))

    def alternate(self, measures: Mapping[str, Measure], *, required: Sequence[str]) -> Samples:
        """Measures all contenders in turn, A B C A B C …; one that fails is left out, unless it is `required`."""
        samples = Samples()
        for number in range(self.rounds):
            for contender, measure in measures.items():
                if contender in samples.left_out:
                    continue
                try:
                    found = measure()
                except (NotInstalled, ProcessEnded) as error:
                    if contender in required:
                        raise
                    samples.left_out[contender] = " ".join(str(error).split())[:300]
                    samples.values.pop(contender, None)
                    self.say(f"  {contender} is left out: {error}")
                    continue
                kept = samples.values.setdefault(contender, {})
                for name, value in found.items():
                    kept.setdefault(name, []).append(value)
                text = ", ".join(f"{name} {shown(value)}" for name, value in found.items())
                self.say(f"  round {number + 1}/{self.rounds}  {contender}: {text}")
        return samples


def shown(value: float) -> str:
    """A number with as many digits as say something."""
    digits = next((digits for bound, digits in ((100, 0), (10, 1), (0.1, 2)) if abs(value) >= bound), 0 if value == 0 else 4)
    return f"{value:,.{digits}f}"


def spread(samples: Sequence[float]) -> str:
    """The median, and the smallest and largest of several."""
    middle = shown(statistics.median(samples))
    return middle if len(samples) == 1 else f"{middle} ({shown(min(samples))}–{shown(max(samples))})"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed, by nearest rank."""
    ranked = sorted(values)
    return ranked[max(0, min(len(ranked) - 1, -int(-share * len(ranked) // 1) - 1))]


def as_json(report: Report) -> dict[str, Any]:
    """A report as it is kept."""
    from dataclasses import asdict

    return asdict(report)


def from_json(kept: Mapping[str, Any]) -> Report:
    """A report that was kept."""
    figures = (Figure(**{**figure, "samples": tuple(figure["samples"])}) for figure in kept["figures"])
    ratios = (
        Ratio(**{**ratio, "samples": tuple(ratio["samples"]), "target": Target(**ratio["target"]) if ratio["target"] else None})
        for ratio in kept["ratios"]
    )
    return Report(kept["benchmark"], tuple(figures), tuple(ratios), tuple(kept["notes"]))
