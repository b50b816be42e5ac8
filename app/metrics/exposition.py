"""The text of a scrape. One reading serves all who ask within a second, or within ten times as long as it took."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import (
    Metric as Family,
)
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import timings
from app.db import transaction
from app.errors import Unavailable
from app.metrics import catalogue, database, durations, processes, queues, reactive, serving, stages
from app.metrics.catalogue import METRICS, Kind, Metric
from app.metrics.durations import Histogram
from app.metrics.sample import Sample

log = logging.getLogger(__name__)

TEXT = "text/plain; version=0.0.4; charset=utf-8"
FRESH_SECONDS = 1.0
#: However often it is asked for, reading takes no more than this part of the time.
BUSY = 0.1
#: No part may keep a connection for longer.
PART_SECONDS = 3
PARTS: dict[str, Callable[[Session], Iterable[Sample | Histogram]]] = {
    "queues": queues.read,
    "serving": serving.read,
    "reactive": reactive.read,
    "stages": stages.read,
    "processes": processes.read,
    "durations": durations.read,
    "database": database.read,
}


class Exposition:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._text, self._until = b"", -math.inf

    def read(self) -> bytes:
        """Whoever comes while it is read waits for that; `Unavailable` where the database is away."""
        with self._lock:
            if self._monotonic() >= self._until:
                begun = self._monotonic()
                self._text = text(sample())
                now = self._monotonic()
                self._until = now + max(FRESH_SECONDS, (now - begun) / BUSY)
            return self._text

    def forget(self) -> None:
        self._until = -math.inf


def sample() -> list[Sample | Histogram]:
    """What is true now, part by part."""
    # What was claimed here, by who polls over HTTP.
    with transaction() as session:
        timings.hand_in(session)
    found: list[Sample | Histogram] = [Sample(catalogue.INFO, 1, (version("tidemill"),))]
    for name, read in PARTS.items():
        begun = time.monotonic()
        failed = False
        try:
            found += _part(read)
        except Unavailable:
            raise
        except SQLAlchemyError:
            log.exception("the metrics of %s could not be read", name)
            failed = True
        found.append(Sample(catalogue.SCRAPE_ERRORS, float(failed), (name,)))
        found.append(Sample(catalogue.SCRAPE_SECONDS, time.monotonic() - begun, (name,)))
    return found


def _part(read: Callable[[Session], Iterable[Sample | Histogram]]) -> list[Sample | Histogram]:
    with transaction() as session:
        session.execute(
            sa.select(
                sa.func.set_config("statement_timeout", f"{PART_SECONDS}s", True),
                sa.func.set_config("transaction_read_only", "on", True),
            )
        )
        return list(read(session))


class _Samples(Collector):
    def __init__(self, found: Iterable[Sample | Histogram]) -> None:
        self._found = found

    def collect(self) -> Iterator[Family]:
        families: dict[str, Any] = {name: _family(each) for name, each in METRICS.items()}
        for each in self._found:
            family = families[each.metric.name]
            if isinstance(each, Histogram):
                family.add_metric(each.labels, [(_le(end), count) for end, count in each.buckets], each.seconds)
            else:
                family.add_metric(each.labels, each.value)
        yield from families.values()


def _family(metric: Metric) -> Family:
    words: dict[str, Any] = {"labels": list(metric.labels)}
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(metric.name, metric.text, **words)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.text, **words)
        case Kind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.text, **words)


def _le(end: float) -> str:
    return "+Inf" if math.isinf(end) else f"{end:g}"


def text(found: Iterable[Sample | Histogram]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(found))
    return generate_latest(registry)


shared = Exposition()
