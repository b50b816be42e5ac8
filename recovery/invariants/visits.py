"""What holds of entities in the queues of stages, and of who works on them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import BIT

from app.claims import Lane
from app.claims.model import is_running, is_waiting
from recovery import record
from recovery.findings import Verdict
from recovery.invariants.claims import NEVER, Claims, newest, of_claims, putting_back, within_lease
from recovery.invariants.entry import BOUND, Invariant, Repair, selecting
from recovery.invariants.setting import removing, setting
from stages.definition import ASK, PREFIX, SYSTEM
from stages.kind import MODES
from stages.model import GUARD, VISIT, EntityKind, Sharding, Stage, StageVisit

VISITS = Claims(StageVisit, "a visit", "visit", record.VISIT, {Lane.MAIN: "due_at", Lane.LOW: "low_at"})
_RUNS, _WAITS = is_running(StageVisit), is_waiting(StageVisit)
_PARKED = VISIT.c.state == sa.text("'parked'")
_KEY = ("kind", "entity_id", "stage")


def known_stage(table: Any) -> sa.ColumnElement[bool]:
    return sa.or_(table.c.stage == SYSTEM, sa.exists().where(Stage.kind == table.c.kind, Stage.name == table.c.stage))


def _same(one: Any, other: Any) -> list[sa.ColumnElement[bool]]:
    return [one.c[word] == other.c[word] for word in _KEY]


def _shard(table: Any) -> sa.ColumnElement[int]:
    """As the database function has it, which would cost more for each row."""
    bits = sa.cast(sa.func.concat("x", sa.func.substr(sa.func.md5(table.c.entity_id), 1, 8)), BIT(32))
    return sa.cast(bits, sa.BigInteger) % sa.select(Sharding.shards).scalar_subquery()


def _queue(table: Any) -> sa.ColumnElement[str]:
    return sa.func.concat(f"{PREFIX}.", table.c.kind, ".", table.c.stage)


def _timeless(table: Any) -> sa.ColumnElement[bool]:
    return sa.and_(_waits(table), table.c.due_at.is_(None), table.c.low_at.is_(None))


def _waits(table: Any) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.state == sa.literal_column("'waiting'"))


def _asked_again(table: Any) -> sa.ColumnElement[bool]:
    again = (table.c[word].is_not(None) for word in ("again_at", "again_low_at", "again_fields"))
    return sa.and_(_waits(table), sa.or_(*again, table.c.again_hops > 0))


def _misplaced(table: Any) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.queue != _queue(table))


_EXCLUSIVE = sa.and_(
    VISIT.c.stage != SYSTEM,
    ~VISIT.c.stage.endswith(ASK, autoescape=True),
    sa.exists().where(EntityKind.kind == VISIT.c.kind, EntityKind.mode == MODES[0]),
)
_WORKS = sa.and_(_RUNS, VISIT.c.recovery_time > sa.func.now(), _EXCLUSIVE)
_unguarded = sa.and_(_WORKS, ~sa.exists().where(*_same(GUARD, VISIT), GUARD.c.pass_key == VISIT.c.pass_key))
_of_nobody = sa.and_(
    GUARD.c.until > sa.func.now(),
    ~sa.exists().where(*_same(VISIT, GUARD), _RUNS, VISIT.c.pass_key == GUARD.c.pass_key),
)
_over = sa.and_(
    GUARD.c.until <= sa.func.now() - sa.text("interval '1 hour'"),
    ~sa.exists().where(*_same(VISIT, GUARD), _RUNS, VISIT.c.pass_key == GUARD.c.pass_key),
)
_rows = newest(VISIT)


def _keys(table: Any) -> list[Any]:
    return [table.c[word] for word in _KEY]


def _visit(
    name: str,
    finding: str,
    wrong: sa.ColumnElement[bool],
    cure: str,
    repair: Repair | None,
    *,
    verdict: Verdict = Verdict.REPAIRABLE,
) -> Invariant:
    return Invariant(
        name, record.VISIT, verdict, finding, selecting(sa.select(*_keys(VISIT)).where(wrong)), cure, repair
    )


def _of_rows(name: str, finding: str, wrong: Any, cure: str, repair: Repair | None, verdict: Verdict) -> Invariant:
    look = selecting(sa.select(*_keys(_rows)).where(wrong))
    return Invariant(name, record.VISIT, verdict, finding, look, cure, repair, bound=BOUND)


def _guard(name: str, finding: str, wrong: Any, cure: str, repair: Repair | None, verdict: Verdict) -> Invariant:
    return Invariant(
        name,
        record.VISIT,
        verdict,
        finding,
        selecting(sa.select(GUARD.c.kind, GUARD.c.entity_id).where(wrong)),
        cure,
        repair,
    )


OF_VISITS: tuple[Invariant, ...] = (
    _guard(
        "the guard of an entity ends",
        "guard_endless",
        GUARD.c.until == NEVER,
        "ends a lease from now, unless its holder gives a sign of life",
        within_lease(GUARD, "until", GUARD.c.until == NEVER),
        Verdict.REPAIRABLE,
    ),
    *of_claims(VISITS),
    _of_rows(
        "a waiting visit has a time",
        "visit_timeless",
        _timeless(_rows),
        "made ready now",
        setting(VISIT, _timeless(VISIT), {"due_at": sa.func.now()}, "made ready"),
        Verdict.REPAIRABLE,
    ),
    _of_rows(
        "what waits was not asked for again",
        "visit_asked_again",
        _asked_again(_rows),
        "waits for the earliest time",
        setting(VISIT, _asked_again(VISIT), StageVisit.released(), "asked for at the earliest time"),
        Verdict.REPAIRABLE,
    ),
    _visit(
        "a parked visit says why",
        "visit_parked_silently",
        sa.and_(_PARKED, VISIT.c.error.is_(None)),
        "says that nobody knows",
        setting(
            VISIT,
            sa.and_(_PARKED, VISIT.c.error.is_(None)),
            {"error": "parked, and nobody knows why", "failed_at": sa.func.coalesce(VISIT.c.failed_at, sa.func.now())},
            "says that nobody knows",
        ),
    ),
    _of_rows(
        "a visit waits in the queue of its stage",
        "visit_misplaced",
        _misplaced(_rows),
        "put into the queue of its stage",
        setting(VISIT, _misplaced(VISIT), {"queue": _queue(VISIT)}, "put into its queue"),
        Verdict.REPAIRABLE,
    ),
    _of_rows(
        "a visit lies in the shard of its entity",
        "visit_in_other_shard",
        _rows.c.shard != _shard(_rows),
        "put into its shard",
        setting(VISIT, VISIT.c.shard != _shard(VISIT), {"shard": _shard(VISIT)}, "put into its shard"),
        Verdict.REPAIRABLE,
    ),
    _visit(
        "a stage that works on an exclusive entity has its guard",
        "visit_unguarded",
        _unguarded,
        "put back to where the normal claim finds it",
        putting_back(VISITS, _unguarded),
    ),
    _guard(
        "a guard that holds is that of a running visit",
        "guard_without_visit",
        _of_nobody,
        "the entity is free",
        removing(GUARD, _of_nobody, "removed"),
        Verdict.REPAIRABLE,
    ),
    _guard(
        "a guard that is over is taken over, or taken away",
        "guard_over",
        _over,
        "nobody: it keeps nobody from the entity",
        None,
        Verdict.HARMLESS,
    ),
    _of_rows(
        "a visit belongs to a known stage",
        "visit_of_unknown_stage",
        ~known_stage(_rows),
        "it waits until a worker registers the stage; or take it out: tidemill stage delete",
        None,
        Verdict.DIAGNOSIS,
    ),
    _visit(
        "no visit is parked",
        "visit_parked",
        _PARKED,
        "an operator: tidemill stage redrive",
        None,
        verdict=Verdict.DIAGNOSIS,
    ),
)
