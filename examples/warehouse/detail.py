"""What the business knows: from staged data, when all that a data set needs is there."""

from __future__ import annotations

from tidemill import All, Any, Run, caught_up, grown, new_chunk, new_day, new_week, reactive, same_chunk
from warehouse.pools import DETAIL
from warehouse.steps import BUILT, LOADED, detail, move


@reactive(
    All(
        new_day("staging.orders", LOADED),
        caught_up("staging.payments", LOADED, with_=("staging.orders", LOADED), within="1d"),
    ),
    pool=DETAIL,
    priority=20,
    produces=[("detail.sales", BUILT)],
)
def sales(run: Run) -> None:
    """A day of orders, once the payments are not more than a day behind."""
    detail(run, "staging.orders", "detail.sales")


@reactive(
    All(
        new_day("staging.returns", LOADED),
        same_chunk("detail.sales", BUILT, "week", with_=("staging.returns", LOADED)),
    ),
    pool=DETAIL,
    produces=[("detail.refunds", BUILT)],
)
def refunds(run: Run) -> None:
    """Returns, once the sales of the same week are there."""
    detail(run, "staging.returns", "detail.refunds")


@reactive(
    Any(new_day("staging.rates", LOADED), new_week("staging.catalogue", LOADED)),
    pool=DETAIL,
    produces=[("detail.prices", BUILT)],
)
def prices(run: Run) -> None:
    """New rates or a new catalogue change them. Both are recorded as seen, whichever of the two it was."""
    sources = [name for name in ("staging.rates", "staging.catalogue") if run.value(name, LOADED) is not None]
    run.advance("detail.prices", built_to=max(run.window(name, LOADED)[1] for name in sources))
    with run.transaction() as session:
        for name in sources:
            move(session, run, name, LOADED, "detail.prices")


@reactive(new_chunk("staging.clicks", LOADED, "12hour"), pool=DETAIL, produces=[("detail.visits", BUILT)])
def visits(run: Run) -> None:
    detail(run, "staging.clicks", "detail.visits")


@reactive(grown("staging.orders", LOADED, by="2d"), pool=DETAIL, priority=-5, produces=[("detail.customers", BUILT)])
def customers(run: Run) -> None:
    """Costly, so not for less than two days of orders."""
    detail(run, "staging.orders", "detail.customers")
