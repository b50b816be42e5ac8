"""From outside into the warehouse, source by source."""

from __future__ import annotations

from celery import shared_task

from tidemill import Run, grown, new_chunk, new_day, new_hour, new_week, reactive
from warehouse.pools import STAGING
from warehouse.steps import LOADED, stage


class RatesUnavailable(Exception):
    pass


@reactive(
    new_chunk("raw.orders", LOADED, "6hour"), pool=STAGING, priority=10, produces=[("staging.orders", "loaded_to")]
)
def orders(run: Run) -> None:
    stage(run, "orders")


@reactive(
    grown("raw.payments", LOADED, by="12h"), pool=STAGING, priority=10, produces=[("staging.payments", "loaded_to")]
)
def payments(run: Run) -> None:
    """Whatever the clock says: when half a day of them has come."""
    stage(run, "payments")


@reactive(new_hour("raw.clicks", LOADED), pool=STAGING, produces=[("staging.clicks", "loaded_to")])
def clicks(run: Run) -> None:
    stage(run, "clicks")


@reactive(new_day("raw.returns", LOADED), pool=STAGING, priority=5, produces=[("staging.returns", "loaded_to")])
def returns(run: Run) -> None:
    stage(run, "returns")


@reactive(new_day("raw.rates", LOADED), pool=STAGING, produces=[("staging.rates", "loaded_to")], max_failures=10)
@shared_task(autoretry_for=(RatesUnavailable,), retry_backoff=1)
def rates(run: Run) -> None:
    """The bank that has them does not answer on every fourth day, and Celery's own words say to try again."""
    _, until = run.window("raw.rates", LOADED)
    if until.day % 4 == 0 and run.attempt == 1:
        raise RatesUnavailable(f"no exchange rates of {until:%d.%m.%Y} yet")
    stage(run, "rates")


@reactive(
    new_week("raw.catalogue", LOADED),
    pool=STAGING,
    produces=[("staging.catalogue", "loaded_to")],
    first_run="baseline",
    max_failures=2,
    backoff="1s",
)
def catalogue(run: Run) -> None:
    """What is there when this is released was loaded by hand; only later weeks are its work. Who publishes it
    mends nothing within seconds, so it is not tried for long."""
    stage(run, "catalogue")
