"""One value of one metric, and how many of them there may be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import sqlalchemy as sa

from app.metrics.catalogue import Metric

#: Of more rows than these it is only said that they are more.
COUNTED = 10_000
#: Of more names than these the rest is left out: who can put work in can invent names.
NAMED = 500


class Sample(NamedTuple):
    metric: Metric
    value: float
    #: As the metric has them.
    labels: tuple[str, ...] = ()


def named(rows: Iterable[Any]) -> Iterator[Any]:
    return islice(rows, NAMED)


def counted(rows: Any) -> Any:
    """How many rows there are, as a scalar; no more of them than `COUNTED` are read."""
    return sa.select(sa.func.count()).select_from(rows.limit(COUNTED).subquery()).scalar_subquery()


def seconds(span: Any) -> Any:
    return sa.func.greatest(sa.extract("epoch", span), 0).cast(sa.Double)
