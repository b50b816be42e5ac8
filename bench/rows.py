"""A row of the result, and the table made of rows. Values in, values and text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True)
class AtLeast:
    ratio: float

    def reached(self, ratio: float) -> bool:
        return ratio >= self.ratio

    def __str__(self) -> str:
        return f"≥ {self.ratio:g}×"


@dataclass(frozen=True)
class AtMost:
    ratio: float

    def reached(self, ratio: float) -> bool:
        return ratio <= self.ratio

    def __str__(self) -> str:
        return f"≤ {self.ratio:g}×"


Goal = AtLeast | AtMost


def goal_of(text: str) -> Goal:
    """What `str` has made of it."""
    sign, ratio = text.removesuffix("×").split()
    return AtLeast(float(ratio)) if sign == "≥" else AtMost(float(ratio))


Side = Literal["us", "peer", "floor"]


@dataclass(frozen=True)
class Row:
    """One figure: the median of its samples, one of each round. `base` are those of the figure that it is divided by,
    `against` says in words whose that is."""

    measure: str
    side: Side
    what: str
    unit: str
    samples: tuple[float, ...]
    base: tuple[float, ...] = ()
    against: str = ""
    goal: Goal | None = None

    @property
    def value(self) -> float:
        return median(self.samples)

    @property
    def ratio(self) -> float | None:
        return self.value / median(self.base) if self.base else None

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of each round; where there is but one base, of each sample with that."""
        base = self.base if len(self.base) == len(self.samples) else self.base[:1] * len(self.samples)
        return tuple(sample / each for sample, each in zip(self.samples, base, strict=True)) if base else ()

    @property
    def reached(self) -> bool | None:
        if self.goal is None or self.ratio is None:
            return None
        return self.goal.reached(self.ratio)

    def as_json(self) -> dict[str, object]:
        return {
            "measure": self.measure,
            "side": self.side,
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "samples": list(self.samples),
            "against": self.against or None,
            "base": list(self.base),
            "ratio": self.ratio,
            "goal": str(self.goal) if self.goal else None,
            "reached": self.reached,
        }

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Row:
        """What follows from the samples is reckoned again."""
        return cls(
            given["measure"],
            given["side"],
            given["what"],
            given["unit"],
            tuple(given["samples"]),
            tuple(given["base"]),
            given["against"] or "",
            goal_of(given["goal"]) if given["goal"] else None,
        )


@dataclass(frozen=True)
class Failure:
    """A measure that could not be taken, and why."""

    measure: str
    reason: str


def figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """From the lowest to the highest."""
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} … {high}"


def of_ratio(value: float) -> str:
    return f"{value:.2f}×"


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {True: "yes", False: "NO", None: ""}[row.reached]
    ratio = "" if row.ratio is None else f"{of_ratio(row.ratio)} {row.against}"
    return (
        row.measure,
        row.what,
        "" if row.goal is None else str(row.goal),
        f"{figure(row.value)} {row.unit}",
        spread(row.samples, figure),
        ratio,
        spread(row.ratios, of_ratio) if row.ratios else "",
        verdict,
    )


HEAD = ("", "measure", "goal", "median", "lowest … highest", "ratio", "of the rounds", "reached")


def table(rows: Sequence[Row], failures: Sequence[Failure]) -> str:
    body = [_cells(row) for row in rows]
    widths = [max(len(line[column]) for line in (HEAD, *body)) for column in range(len(HEAD))]

    def render(line: tuple[str, ...]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()

    rule = "  ".join("─" * width for width in widths)
    lines = [render(HEAD)]
    for _, group in groupby(body, key=lambda line: line[0]):
        lines.append(rule)
        lines.extend(render(line) for line in group)
    lines.extend(f"{failure.measure} FAILED: {failure.reason}" for failure in failures)
    return "\n".join(lines)
