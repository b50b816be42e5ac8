"""Limits of a pool of reactive tasks, set by an operator."""

from __future__ import annotations

from typing import Any

from app.clock import Rate
from app.console.web.page import REASON, Act, Done, Input, Question, Undo, Visit
from app.db import transaction
from app.errors import BadRequest
from triggers import listing, lookup, pools
from triggers.listing import PoolFigures

TO = "/reactive/pools"
MOST_PARALLEL = 2**31 - 1


def _pool(visit: Visit) -> PoolFigures:
    with transaction() as session:
        return listing.pool(session, lookup.pool(session, visit.query.needed("pool", 200)))


def _text(limit: Any) -> str:
    return "" if limit is None else str(limit)


def _limits(parallel: int | None, rate: str | None) -> str:
    return f"{parallel or 'any number'} at once, {rate or 'any number of'} starts"


def _ask_limit(visit: Visit) -> Question:
    pool = _pool(visit)
    says = ["For the whole cluster, from the next start on; what runs now runs on."]
    if pool.declared is not None:
        declared = _limits(pool.declared["max_parallel"], pool.declared["rate_limit"])
        says.append(f"The code declares {declared}; it is applied again only when the code changes.")
    inputs = (
        Input(
            "parallel", "At once", _text(pool.max_parallel), "How many may run at once; empty for any number.", "number"
        ),
        Input("rate", "Starts", _text(pool.rate_limit), "How many may start in a time, as in 10/min; empty for any."),
        REASON,
    )
    return Question(f"Limit pool {pool.name}?", says, "Limit", inputs, back=TO)


def _limit(visit: Visit) -> Done:
    before = _pool(visit)
    parallel, rate = visit.form.number("parallel", 1, MOST_PARALLEL), visit.form.text("rate", 40)
    if rate is not None:
        try:
            Rate.parse(rate)
        except ValueError as error:
            raise BadRequest(str(error)) from None
    pools.configure(before.name, max_parallel=parallel, rate_limit=rate, reason=visit.form.text("reason", 1000))
    fields = {"pool": before.name, "parallel": _text(before.max_parallel), "rate": _text(before.rate_limit)}
    return Done(f"Pool {before.name}: {_limits(parallel, rate)}.", TO, Undo("pool_limit", fields, "As it was"))


def _ask_pause(visit: Visit) -> Question:
    pool = _pool(visit)
    says = [f"None of its {pool.tasks} tasks starts until it is resumed; {pool.running} that run may end."]
    return Question(f"Pause pool {pool.name}?", says, "Pause", (REASON,), back=TO)


def _ask_resume(visit: Visit) -> Question:
    pool = _pool(visit)
    return Question(f"Resume pool {pool.name}?", [f"{pool.waiting} runs wait in it."], "Resume", (REASON,), back=TO)


def _set_paused(visit: Visit, *, paused: bool) -> Done:
    pool = _pool(visit)
    pools.configure(pool.name, paused=paused, reason=visit.form.text("reason", 1000))
    undo = Undo("pool_resume" if paused else "pool_pause", {"pool": pool.name}, "Resume" if paused else "Pause again")
    return Done(f"Pool {pool.name} is {'paused' if paused else 'open'}.", TO, undo)


ACTS = (
    Act("pool_limit", "/reactive/pools/limit", _ask_limit, _limit),
    Act("pool_pause", "/reactive/pools/pause", _ask_pause, lambda visit: _set_paused(visit, paused=True)),
    Act("pool_resume", "/reactive/pools/resume", _ask_resume, lambda visit: _set_paused(visit, paused=False)),
)
