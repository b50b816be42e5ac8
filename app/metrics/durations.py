"""Histograms: from buckets by their upper ends to buckets that hold all below them, as Prometheus has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy.orm import Session

from app import timings
from app.metrics import catalogue
from app.metrics.catalogue import Metric
from app.stopwatch import ENDS, WAIT, Piece, Series

#: Of all series together.
BUCKETS_MOST = 20_000


@dataclass(frozen=True)
class Histogram:
    metric: Metric
    labels: tuple[str, ...]
    #: How many took no longer than this, by upper end; the last one is infinity.
    buckets: tuple[tuple[float, int], ...]
    seconds: float


def read(session: Session) -> Iterator[Histogram]:
    for series, pieces in groupby(timings.read(session, BUCKETS_MOST), lambda piece: piece.series):
        yield histogram(series, list(pieces))


def histogram(series: Series, pieces: Sequence[Piece]) -> Histogram:
    """Pure."""
    buckets = tuple((end, sum(each.times for each in pieces if each.le <= end)) for end in ENDS)
    waiting = series.measure == WAIT
    labels = (series.kind, series.name) if waiting else (series.kind, series.name, series.outcome)
    metric = catalogue.WAIT if waiting else catalogue.WORK
    return Histogram(metric, labels, buckets, sum(each.seconds for each in pieces))
