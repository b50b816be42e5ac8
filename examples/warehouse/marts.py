"""What people look at. The more important a mart, the higher its priority; `warehouse.pools` lets two work at once."""

from __future__ import annotations

from tidemill import (
    All,
    Any,
    ChunkDelta,
    ChunkRefDelay,
    Run,
    caught_up,
    grown,
    new_day,
    new_month,
    new_quarter,
    new_week,
    new_year,
    reactive,
)
from warehouse.pools import MARTS
from warehouse.steps import BUILT, total


@reactive(
    # Classes where there is no word: prices may be one day behind, and it is days that count, not hours.
    All(
        ChunkDelta("detail.sales", BUILT, "day", 1),
        ChunkRefDelay("detail.prices", BUILT, "detail.sales", BUILT, "day", 1),
    ),
    pool=MARTS,
    priority=50,
    produces=[("mart.daily_sales", BUILT)],
)
def daily_sales(run: Run) -> None:
    total(run, "detail.sales", "mart.daily_sales", "day")


@reactive(new_week("detail.sales", BUILT, tz="Europe/Berlin"), pool=MARTS, produces=[("mart.weekly_sales", BUILT)])
def weekly_sales(run: Run) -> None:
    """A week begins when it does in Berlin."""
    total(run, "detail.sales", "mart.weekly_sales", "week")


@reactive(new_month("detail.sales", BUILT), pool=MARTS, produces=[("mart.monthly_sales", BUILT)])
def monthly_sales(run: Run) -> None:
    total(run, "detail.sales", "mart.monthly_sales", "month")


@reactive(new_quarter("detail.sales", BUILT), pool=MARTS, produces=[("mart.quarterly_sales", BUILT)])
def quarterly_sales(run: Run) -> None:
    total(run, "detail.sales", "mart.quarterly_sales", "quarter")


@reactive(new_year("detail.refunds", BUILT), pool=MARTS, priority=-10, produces=[("mart.yearly_refunds", BUILT)])
def yearly_refunds(run: Run) -> None:
    total(run, "detail.refunds", "mart.yearly_refunds", "year")


@reactive(
    All(new_day("detail.visits", BUILT), caught_up("detail.sales", BUILT, with_=("detail.visits", BUILT), within="3d")),
    pool=MARTS,
    priority=10,
    produces=[("mart.conversion", BUILT)],
)
def conversion(run: Run) -> None:
    total(run, "detail.visits", "mart.conversion", "day")


@reactive(
    Any(new_week("detail.customers", BUILT), grown("detail.sales", BUILT, by="3d")),
    pool=MARTS,
    produces=[("mart.loyalty", BUILT)],
)
def loyalty(run: Run) -> None:
    """Whichever comes first; the customers are what it sums up."""
    if run.value("detail.customers", BUILT) is None:
        run.cancel("there are no customers yet")
    total(run, "detail.customers", "mart.loyalty", "week")
