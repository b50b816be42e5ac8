"""A row of the result, and the table made of rows. Values in, values and text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal


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
Side = Literal["us", "peer", "floor"]


@dataclass(frozen=True)
class Row:
    """One figure. `base` is the figure it is divided by, `against` says in words whose that is."""

    measure: str
    side: Side
    what: str
    value: float
    unit: str
    base: float | None = None
    against: str = ""
    goal: Goal | None = None
    samples: tuple[float, ...] = ()

    @property
    def ratio(self) -> float | None:
        return self.value / self.base if self.base else None

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
            "against": self.against or None,
            "base": self.base,
            "ratio": self.ratio,
            "goal": str(self.goal) if self.goal else None,
            "reached": self.reached,
            "samples": list(self.samples),
        }


@dataclass(frozen=True)
class Failure:
    """A measure that could not be taken, and why."""

    measure: str
    reason: str


def figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cells(row: Row) -> tuple[str, ...]:
    verdict = {True: "yes", False: "NO", None: ""}[row.reached]
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}× {row.against}"
    return (
        row.measure,
        row.what,
        "" if row.goal is None else str(row.goal),
        f"{figure(row.value)} {row.unit}",
        ratio,
        verdict,
    )


def table(rows: Sequence[Row], failures: Sequence[Failure]) -> str:
    head = ("", "measure", "goal", "value", "ratio", "reached")
    body = [_cells(row) for row in rows]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]

    def render(line: tuple[str, ...]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()

    rule = "  ".join("─" * width for width in widths)
    lines = [render(head)]
    for _, group in groupby(body, key=lambda line: line[0]):
        lines.append(rule)
        lines.extend(render(line) for line in group)
    lines.extend(f"{failure.measure} FAILED: {failure.reason}" for failure in failures)
    return "\n".join(lines)
