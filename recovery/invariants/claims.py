"""What holds of every claim, whatever is claimed: jobs, runs, visits, pages of walks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.claims import Claimable, Lane, storm
from app.claims.model import distinct_prefix, is_running, key_columns, table_of
from app.settings import settings
from recovery.findings import Verdict
from recovery.invariants.entry import BOUND, Done, Invariant, Key, Repair, by_keys, selecting
from recovery.invariants.setting import locked, setting

#: What a service may be late without anything being wrong.
SLACK = timedelta(seconds=10)
NEVER: sa.ColumnElement[Any] = sa.literal_column("'infinity'::timestamptz")
NOBODY = "unknown"


@dataclass(frozen=True)
class Claims:
    """How the claims of a table are told of: `a job`, by its word in the record."""

    model: type[Claimable]
    noun: str
    word: str
    domain: str
    lanes: dict[Lane, str]
    #: Called with the keys before they are put back; returns those that are dealt with, and how.
    before: Callable[[Session, Sequence[Key]], dict[Key, str]] = lambda _session, _keys: {}
    #: Somebody asks for its time, and may have asked for one that never comes.
    asked: bool = True

    @property
    def table(self) -> sa.Table:
        return table_of(self.model)


def overdue_for() -> timedelta:
    """So long after its time is over, a sweep should have come by, also after the pause that follows a start."""
    return 2 * settings().sweep_interval + settings().lease + SLACK


def late(column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    began = sa.func.greatest(sa.func.pg_postmaster_start_time(), sa.func.pg_last_xact_replay_timestamp())
    return sa.and_(column < sa.func.now() - overdue_for(), began < sa.func.now() - overdue_for())


def newest(table: sa.Table, *conditions: sa.ColumnElement[bool], by: Any = None) -> sa.Subquery:
    """The rows that a bounded detector reads."""
    order = [column.desc() for column in table.primary_key.columns] if by is None else [by]
    return sa.select(table).where(*conditions).order_by(*order).limit(BOUND).subquery("newest")


def of_claims(what: Claims) -> tuple[Invariant, ...]:
    table, running = what.table, is_running(what.model)
    nameless = sa.and_(running, sa.or_(table.c.claimed_by.is_(None), table.c.claimed_at.is_(None)))
    named = {
        "claimed_by": sa.func.coalesce(table.c.claimed_by, NOBODY),
        "claimed_at": sa.func.coalesce(table.c.claimed_at, sa.func.now()),
    }
    endless = sa.and_(running, table.c.recovery_time == NEVER)
    key = key_columns(what.model)
    return (
        *_passes(what),
        Invariant(
            f"{what.noun} that runs says who has it",
            what.domain,
            Verdict.REPAIRABLE,
            f"{what.word}_nameless",
            selecting(sa.select(*key).where(nameless)),
            f"set to '{NOBODY}', since now",
            setting(table, nameless, named, f"set to '{NOBODY}'"),
        ),
        Invariant(
            f"the claim of {what.noun} ends",
            what.domain,
            Verdict.REPAIRABLE,
            f"{what.word}_endless",
            selecting(sa.select(*key).where(endless)),
            "ends a lease from now, unless its holder gives a sign of life",
            within_lease(what.table, "recovery_time", endless),
        ),
        *_waiting(what),
        Invariant(
            f"the lost claim of {what.noun} is taken away by a sweep",
            what.domain,
            Verdict.DIAGNOSIS,
            f"{what.word}_overdue",
            selecting(lambda: sa.select(*key).where(running, late(table.c.recovery_time))),
            "a scheduler, or beat with a worker for the queue 'control', takes it; else tidemill recover sweep",
        ),
    )


def within_lease(table: sa.Table, column: str, endless: sa.ColumnElement[bool]) -> Repair:
    def repair(session: Session, keys: Sequence[Key]) -> Done:
        until = {column: sa.func.now() + settings().lease}
        return setting(table, endless, until, "ends a lease from now")(session, keys)

    return repair


def _passes(what: Claims) -> tuple[Invariant, Invariant]:
    table, running, key = what.table, is_running(what.model), key_columns(what.model)
    lost = sa.and_(running, sa.or_(table.c.pass_key.is_(None), table.c.recovery_time.is_(None)))
    left = sa.and_(~running, sa.or_(table.c.pass_key.is_not(None), table.c.recovery_time.is_not(None)))
    rows = newest(table)
    in_rows = sa.or_(rows.c.pass_key.is_not(None), rows.c.recovery_time.is_not(None))
    idle = rows.c.state != sa.literal_column(f"'{what.model.RUNNING}'")
    return (
        Invariant(
            f"{what.noun} that runs has a pass, and a time at which it is lost",
            what.domain,
            Verdict.REPAIRABLE,
            f"{what.word}_without_pass",
            selecting(sa.select(*key).where(lost)),
            "put back to where the normal claim finds it",
            putting_back(what, lost),
        ),
        Invariant(
            f"{what.noun} that does not run has no pass",
            what.domain,
            Verdict.REPAIRABLE,
            f"{what.word}_idle_with_pass",
            selecting(sa.select(*(rows.c[each.name] for each in key)).where(in_rows, idle)),
            "the pass is taken away",
            setting(table, left, {"pass_key": None, "recovery_time": None}, "taken away"),
            bound=BOUND,
        ),
    )


def putting_back(what: Claims, lost: sa.ColumnElement[bool]) -> Repair:
    """What runs and is nobody's waits again, in its turn (R11)."""

    def repair(session: Session, keys: Sequence[Key]) -> Done:
        columns = key_columns(what.model)
        ours = locked(session, what.table, keys)
        ours = [tuple(row) for row in session.execute(sa.select(*columns).where(by_keys(columns, ours), lost)).all()]
        if not ours:
            return Done()
        done = what.before(session, ours)
        values = {"state": what.model.WAITING, "pass_key": None, "recovery_time": None, **what.model.released()}
        mine = by_keys(columns, [key for key in ours if key not in done])
        put = sa.update(what.table).where(mine, lost).values(**values).returning(*columns, what.table.c.queue)
        rows = session.execute(put).all()
        spread(session, what, [(tuple(row[:-1]), row[-1]) for row in rows])
        return Done(done | {tuple(row[:-1]): "queued" for row in rows})

    return repair


def spread(session: Session, what: Claims, rows: Sequence[tuple[Key, str]]) -> None:
    """R11: those that wait again come in their turn."""
    turns = storm.delays(session, [queue for _, queue in rows])
    columns = key_columns(what.model)
    for (key, _), turn in zip(rows, turns, strict=True):
        if turn:
            later = sa.func.greatest(what.table.c.not_before, sa.func.now() + timedelta(seconds=turn))
            session.execute(sa.update(what.table).where(by_keys(columns, [key])).values(not_before=later))


def _waiting(what: Claims) -> list[Invariant]:
    """Of each lane: what nobody would ever claim."""
    found = []
    for lane, column in what.lanes.items():
        low = lane is Lane.LOW
        due, before = what.table.c[column], what.table.c.not_before
        never = sa.or_(due.is_(None), before == NEVER, sa.false() if what.asked else due == NEVER)
        wrong = sa.and_(what.model.waits_in(lane), never)
        timeless = due.is_(None) if what.asked else sa.or_(due.is_(None), due == NEVER)
        values = {
            column: sa.case((timeless, sa.func.now()), else_=due),
            "not_before": sa.case((before != NEVER, before)),
        }
        found.append(
            Invariant(
                f"{what.noun} that waits can be claimed" + " in the low lane" * low,
                what.domain,
                Verdict.REPAIRABLE,
                f"{what.word}_unclaimable" + "_low" * low,
                selecting(_unready(what, lane, wrong)),
                "made ready now",
                setting(what.table, wrong, values, "made ready"),
            )
        )
    return found


def _unready(what: Claims, lane: Lane, wrong: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """By the index of what waits: in each queue, and rank, what has no time or one that never comes is at its end."""
    model, key = what.model, key_columns(what.model)
    waits, ready = model.waits_in(lane), model.ready(lane)
    places = distinct_prefix(model, waits, *((model.rank,) if model.RANKED else ()))
    here = [model.queue == places.c.queue, *([model.rank == places.c.rank] if model.RANKED else [])]
    none = sa.select(*key).where(*here, waits, ready.is_(None), wrong).lateral("none")
    never = sa.select(*key).where(*here, waits, ready >= NEVER, wrong).lateral("never")
    either = [sa.select(*each.c).select_from(sa.join(places, each, sa.true())) for each in (none, never)]
    return sa.select(sa.union_all(*either).subquery("unready"))
