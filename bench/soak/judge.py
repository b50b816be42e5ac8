"""Whether a series of samples is flat: what it gained in the second half of the time, against its noise. Pure.

The slope is the median of those between all pairs of samples: a table that is vacuumed now and then goes up and down,
and is flat; what grows for good is found, however much it also goes up and down, if one looks for long enough.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Fewer samples in the second half say nothing.
LEAST = 10
HOUR = 3600.0
MIB = 1024.0 * 1024
#: Points of a series of which all pairs are compared.
MOST = 150
NOISE = 3.0


@dataclass(frozen=True)
class Limit:
    """What a series may gain: so much in all, or this part of what it is, in an hour."""

    least: float
    part: float = 0.0


#: By the first word of a series. Dead rows: autovacuum comes at 20,000 in a table of what waits.
LIMITS = {
    "memory": Limit(4 * MIB, 0.10),
    "connections": Limit(1.0),
    "broker": Limit(1 * MIB, 0.10),
    "keys": Limit(50.0),
    "size": Limit(1 * MIB, 0.10),
    "dead": Limit(20_000.0, 0.50),
    "rows": Limit(2_000.0, 0.10),
    "waiting": Limit(500.0),
    "oldest": Limit(10.0),
}


@dataclass(frozen=True)
class Sample:
    """Seconds since the load began, and the value of each series then."""

    at: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Verdict:
    series: str
    #: Its median in the second half, and the most it ever was.
    level: float
    most: float
    #: What it gained in the second half, and what it may.
    gained: float
    allowed: float

    @property
    def flat(self) -> bool:
        return self.gained <= self.allowed


def judge(samples: Sequence[Sample]) -> list[Verdict]:
    """All series, those first that are not flat; none where there are too few samples."""
    if not samples:
        return []
    half = (samples[0].at + samples[-1].at) / 2
    late = [sample for sample in samples if sample.at >= half]
    names = sorted({name for sample in late for name in sample.values})
    found = []
    for name in names:
        points = [(sample.at, sample.values[name]) for sample in late if name in sample.values]
        if len(points) >= LEAST:
            most = max(sample.values.get(name, 0.0) for sample in samples)
            found.append(_verdict(name, points, most))
    return sorted(found, key=lambda verdict: (verdict.flat, verdict.series))


def _verdict(name: str, points: Sequence[tuple[float, float]], most: float) -> Verdict:
    slope = _slope(points)
    level = statistics.median(value for _, value in points)
    middle = statistics.median(at for at, _ in points)
    noise = 1.4826 * statistics.median(abs(value - level - slope * (at - middle)) for at, value in points)
    span = points[-1][0] - points[0][0]
    limit = LIMITS[name.split()[0]]
    allowed = max(limit.least, limit.part * level * span / HOUR, NOISE * noise)
    return Verdict(name, level, most, slope * span, allowed)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    few = points[:: max(1, len(points) // MOST)]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for number, earlier in enumerate(few)
        for later in few[number + 1 :]
        if later[0] > earlier[0]
    ]
    return statistics.median(slopes)
