"""The statements by which visits end. Pure: they are built here, and executed by `stages.ending`.

A plan is made once, when these tables may be empty: no condition below leaves the database a way other than by the
whole key, and nothing is joined with what another part of the statement returns but by such a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

from app.claims.model import built_once
from app.prepared import Prepared
from stages.model import FIRST_VERSION, GUARD, NOT_AGAIN, STATE, VISIT, StageVisit, VisitState

MOMENT = TIMESTAMP(timezone=True)
#: How long the offers of an ending wait for rows that somebody else has locked.
LOCK_TIMEOUT = "100ms"
#: Of a state that stays as it is.
KEPT = ""


@dataclass(frozen=True)
class Form:
    """What makes one statement another than the next."""

    guarded: bool
    states: bool
    offers: bool
    wait: bool

    @property
    def name(self) -> str:
        return "complete" + "_guarded" * self.guarded + "_states" * self.states + "_offers" * self.offers


@built_once
def prepared(form: Form) -> Prepared:
    return Prepared(form.name, completing(form))


def _unnest(name: str, **columns: tuple[str, Any]) -> Any:
    """Rows made of parameters, one array a column, each as one text."""
    arrays = [sa.cast(sa.bindparam(parameter, type_=sa.Text), ARRAY(kind)) for parameter, kind in columns.values()]
    typed = [sa.column(column, kind) for column, (_, kind) in columns.items()]
    return sa.func.unnest(*arrays).table_valued(*typed).render_derived(name=name)


_KIND, _STAGE = sa.bindparam("p_kind", type_=sa.Text), sa.bindparam("p_stage", type_=sa.Text)
_PASS = sa.bindparam("p_pass_key", type_=sa.Uuid)


def carried(form: Form) -> dict[str, Any]:
    """What is said of each visit, as a parameter `p_…` each."""
    columns = {"id": sa.Text, "timer": MOMENT, "hops": sa.SmallInteger, "chain": sa.Text}
    if form.states:
        columns |= {"state_version": sa.BigInteger, "type_url": sa.Text, "value": sa.LargeBinary}
    return columns


@built_once
def completing(form: Form) -> sa.Select[Any]:
    given = _unnest("given", **{name: (f"p_{name}", kind) for name, kind in carried(form).items()})
    return result(ended(given, form), form)


def ended(given: Any, form: Form) -> sa.CTE:
    """Those that end now: their row is ours, their guard was, and their state is what the visit saw. `given`: the
    columns of `carried`, and whatever else is to be said of them."""
    mine = _mine(given, "again_at", "again_low_at", "again_fields", "again_hops", "again_chain", wait=form.wait)
    own = sa.select(*mine.c, *(each for each in given.c if each.name != "id")).select_from(
        sa.join(given, mine, sa.true())
    )
    if form.states:
        first = sa.case((_is_first(given), FIRST_VERSION)).label("first_version")
        own = own.add_columns(first).where(_fresh(given, wait=form.wait))
    ok = own.cte("tidemill_own").prefix_with("MATERIALIZED", dialect="postgresql")
    return _freed(ok) if form.guarded else ok


def result(ok: sa.CTE, form: Form, *more: sa.CTE) -> sa.Select[Any]:
    """Ends them, and says which."""
    writes = [*_leave(ok), *(_written(ok, form) if form.states else ()), *more]
    result = sa.select(ok.c.entity_id).add_cte(*writes)
    if form.offers:
        offered = _offered(ok, form)
        result = result.add_columns(sa.select(offered.c.moved).scalar_subquery().label("moved"))
    return result


def _mine(given: Any, *columns: str, wait: bool = False) -> Any:
    """The row of the queue for each that is given, locked, if it is still ours."""
    return (
        sa.select(*(VISIT.c[name] for name in ("kind", "entity_id", "stage", *columns)))
        .where(VISIT.c.kind == _KIND, VISIT.c.entity_id == given.c.id, VISIT.c.stage == _STAGE)
        .where(VISIT.c.pass_key == _PASS)
        .with_for_update(skip_locked=not wait)
        .lateral("mine")
    )


def _same(table: sa.Table, row: sa.CTE) -> list[sa.ColumnElement[bool]]:
    return [table.c[word] == row.c[word] for word in ("kind", "entity_id", "stage")]


def _listed(table: sa.Table, ok: sa.CTE, *which: sa.ColumnElement[bool]) -> list[sa.ColumnElement[bool]]:
    """Some of these, as a list: one walk through the index finds them all."""
    ids = sa.func.array(sa.select(ok.c.entity_id).where(*which).scalar_subquery(), type_=ARRAY(sa.Text))
    return [table.c.kind == _KIND, table.c.stage == _STAGE, table.c.entity_id == sa.any_(ids)]


def _freed(own: sa.CTE) -> sa.CTE:
    """Those whose guard is ours, which it is no more after this."""
    return (
        sa.delete(GUARD)
        .where(GUARD.c.kind == own.c.kind, GUARD.c.entity_id == own.c.entity_id, GUARD.c.pass_key == _PASS)
        .returning(*own.c)
        .cte("tidemill_freed")
    )


def _leave(ok: sa.CTE) -> list[sa.CTE]:
    """S10: what was asked for again, or has a timer, waits anew; the rest goes."""
    due = sa.func.least(ok.c.again_at, ok.c.timer)
    stays = sa.or_(due.is_not(None), ok.c.again_low_at.is_not(None))
    hops = sa.func.coalesce(ok.c.hops, 0)
    longer = ok.c.again_hops > hops
    anew: dict[str, Any] = {
        "state": VisitState.WAITING,
        "due_at": due,
        "low_at": ok.c.again_low_at,
        "fields": ok.c.again_fields,
        "hops": sa.func.greatest(ok.c.again_hops, hops),
        "chain": sa.case((longer, ok.c.again_chain), else_=ok.c.chain),
        **NOT_AGAIN,
        **dict.fromkeys(("not_before", "pass_key", "recovery_time", "claimed_at", "claimed_by")),
        **dict.fromkeys(("error", "traceback", "seen_version", "seen_state_version", "failed_at")),
        "attempts": 0,
        "alone": False,
    }
    return [
        sa.update(VISIT).where(*_same(VISIT, ok), stays).values(anew).cte("tidemill_stayed"),
        sa.delete(VISIT).where(*_listed(VISIT, ok, ~stays)).cte("tidemill_gone"),
    ]


def _fresh(given: Any, *, wait: bool) -> sa.ColumnElement[bool]:
    """S6: whose state is what the visit saw, and is not being changed just now if the visit changes it."""
    known = (
        sa.select(STATE.c.version)
        .where(STATE.c.kind == _KIND, STATE.c.entity_id == given.c.id, STATE.c.stage == _STAGE)
        .correlate(given)
    )
    locked = known.with_for_update(skip_locked=not wait).scalar_subquery()
    version = sa.case((is_kept(given), known.scalar_subquery()), else_=locked)
    return sa.or_(given.c.state_version.is_(None), sa.func.coalesce(version, 0) == given.c.state_version)


def _patient(query: sa.Select[Any], form: Form) -> sa.Select[Any]:
    """Waits for strangers for a moment only. The setting is made by the statement that needs it, at no round trip."""
    if form.wait:
        return query
    patience = sa.func.set_config(sa.literal_column("'lock_timeout'"), sa.literal_column(f"'{LOCK_TIMEOUT}'"), True)
    return query.where(sa.select(patience).scalar_subquery().is_not(None))


def is_new(rows: Any) -> sa.ColumnElement[bool]:
    return rows.c.type_url > sa.literal_column(f"'{KEPT}'")  # type: ignore[no-any-return]


def is_kept(rows: Any) -> sa.ColumnElement[bool]:
    return rows.c.type_url == sa.literal_column(f"'{KEPT}'")  # type: ignore[no-any-return]


def _is_first(rows: Any) -> sa.ColumnElement[bool]:
    return sa.and_(rows.c.state_version == 0, is_new(rows))


def _written(ok: sa.CTE, form: Form) -> list[sa.CTE]:
    columns = ("kind", "entity_id", "stage", "type_url", "value", "first_version")
    new = is_new(ok)
    first = sa.select(*(ok.c[name] for name in columns)).where(_is_first(ok))
    known = [*_same(STATE, ok), ok.c.state_version > 0]
    values = {
        "type_url": ok.c.type_url,
        "value": ok.c.value,
        "version": STATE.c.version + 1,
        "changed_at": sa.func.clock_timestamp(),
    }
    return [
        # Somebody else may be making it: then there is a unique violation, or a wait.
        sa.insert(STATE).from_select([*columns[:-1], "version"], _patient(first, form)).cte("tidemill_first_state"),
        sa.update(STATE).where(*known, new).values(values).cte("tidemill_next_state"),
        sa.delete(STATE)
        .where(*_listed(STATE, ok, ok.c.state_version > 0, ok.c.type_url.is_(None)))
        .cte("tidemill_no_state"),
    ]


def _offered(ok: sa.CTE, form: Form) -> sa.CTE:
    """The other stages that want what is saved here; by the merge rule, which only the database has."""
    offer = _unnest(
        "offer",
        id=("p_offer_ids", sa.Text),
        stage=("p_offer_stages", sa.Text),
        at=("p_offer_times", MOMENT),
        hops=("p_offer_hops", sa.SmallInteger),
        chain=("p_offer_chains", sa.Text),
    )
    texts = ARRAY(sa.Text)
    moved = sa.func.tidemill.offer_visits(
        _KIND,
        sa.func.array_agg(offer.c.id, type_=texts),
        sa.func.array_agg(offer.c.stage, type_=texts),
        sa.func.array_agg(offer.c.at, type_=ARRAY(MOMENT)),
        sa.bindparam("p_low", type_=sa.Boolean),
        sa.null(),
        sa.func.array_agg(offer.c.hops, type_=ARRAY(sa.SmallInteger)),
        sa.func.array_agg(offer.c.chain, type_=texts),
        type_=sa.BigInteger,
    )
    # Not as a join (see above): as a condition with more around it, it becomes a table of hashes.
    saved = offer.c.id.in_(sa.select(ok.c.entity_id)).is_(True)
    offers = sa.select(moved.label("moved")).select_from(offer).where(saved)
    return _patient(offers, form).having(sa.func.count() > 0).cte("tidemill_offered")


@built_once
def failing(guarded: bool) -> Any:  # noqa: FBT001
    """Visits that did not end well, or not here: back to waiting, or parked."""
    given = _unnest(
        "given",
        id=("p_ids", sa.Text),
        error=("p_errors", sa.Text),
        traceback=("p_traces", sa.Text),
        version=("p_versions", sa.BigInteger),
        state_version=("p_state_versions", sa.BigInteger),
        seconds=("p_seconds", sa.Double),
        charged=("p_charged", sa.Boolean),
        by_itself=("p_alone", sa.Boolean),
    )
    mine = _mine(given)
    own = (
        sa.select(*mine.c, *(each for each in given.c if each.name != "id"))
        .select_from(sa.join(given, mine, sa.true()))
        .cte("tidemill_own")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    parks = own.c.seconds.is_(None)
    values: dict[str, Any] = {
        **StageVisit.released(),
        "state": sa.cast(sa.case((parks, VisitState.PARKED), else_=VisitState.WAITING), VISIT.c.state.type),
        # A parked row keeps what it is asked for until it is redriven.
        "again_at": sa.case((parks, VISIT.c.again_at)),
        "again_low_at": sa.case((parks, VISIT.c.again_low_at)),
        **dict.fromkeys(("pass_key", "recovery_time")),
        "not_before": sa.case(
            (own.c.seconds > 0, sa.func.clock_timestamp() + sa.func.make_interval(0, 0, 0, 0, 0, 0, own.c.seconds))
        ),
        "alone": sa.or_(VISIT.c.alone, own.c.by_itself),
        "attempts": sa.case((own.c.charged, VISIT.c.attempts), else_=sa.func.greatest(VISIT.c.attempts - 1, 0)),
        **{
            name: sa.case((own.c.error.is_not(None), value), else_=VISIT.c[name])
            for name, value in (
                ("error", own.c.error),
                ("traceback", own.c.traceback),
                ("seen_version", own.c.version),
                ("seen_state_version", own.c.state_version),
                ("failed_at", sa.func.clock_timestamp()),
            )
        },
    }
    statement = sa.update(VISIT).where(*_same(VISIT, own)).values(values).returning(VISIT.c.entity_id)
    if guarded:
        statement = statement.add_cte(_freed(own))
    return statement
