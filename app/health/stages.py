"""Checks of stages: does the database hear of changes, does somebody visit, what failed, does a walk go on."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import workers
from app.claims import Lane
from app.claims.model import is_running, is_waiting
from app.health.finding import Finding, fail, ok, warn
from app.settings import settings
from app.words import counted, first_line, span
from stages import lookup, parked
from stages.lookup import Known
from stages.model import EntityKind, Resweep, ResweepPart, ResweepState, Stage
from stages.parked import Selection
from stages.sync import other_shards, watched

SHOWN = 5
#: A part of a walk that could go on is taken within moments.
STANDS_STILL = timedelta(minutes=2)
_DECLARED = Stage.removed_at.is_(None)


def tables(session: Session) -> Finding:
    """S7: kinds that have stages, and whose table has no trigger."""
    has_stages = sa.exists().where(Stage.kind == EntityKind.kind, _DECLARED)
    query = sa.select(EntityKind.kind, EntityKind.relation, watched().label("watched")).where(has_stages)
    rows = session.execute(query.order_by(EntityKind.kind)).all()
    deaf = [row for row in rows if not row.watched]
    if not deaf:
        return ok("watched tables", f"{len(rows)} with stages, each has its triggers")
    relation = deaf[0].relation or deaf[0].kind
    return fail(
        "watched tables",
        f"no change of {_names([row.kind for row in deaf])} is heard of: the table has no trigger, or is not there",
        f"put it on with stages.install(session, …), or in SQL: select tidemill.watch('{relation}', '{deaf[0].kind}')",
    )


def taken(session: Session) -> Finding:
    """Whether a live worker takes what each stage declares; that work waits already is found apart."""
    known = [each for each in lookup.known_stages(session) if not each.removed]
    with_stages = {each.kind for each in known if each.task is not None}
    slots = workers.slots(session)
    lonely = [queue for each in known if each.kind in with_stages for queue in _queues(each) if queue not in slots]
    if not lonely or not slots:
        # That none is alive at all is told elsewhere.
        count = sum(each.task is not None for each in known)
        return ok("stage workers", f"{count} stages, none without a live worker" if slots else "no worker is alive")
    quoted = shlex.quote(",".join(lonely[:SHOWN]))
    return warn(
        "stage workers",
        f"no live worker takes {_names(lonely)}: what comes there will wait",
        f"start one with these modules in TIDEMILL_MODULES: celery -A app worker -Q {quoted}",
    )


def _queues(stage: Known) -> list[str]:
    return [stage.queue] if stage.task is None else [stage.queue, f"{stage.queue}.{Lane.LOW}"]


def visits(session: Session) -> Finding:
    """S17."""
    counts = parked.count(session, Selection())
    if not counts:
        return ok("parked visits", "none")
    worst = parked.groups(session, Selection(), 1)
    total, stages = sum(counts.values()), [name.partition(".")[2] for name in counts]
    error = first_line(worst[0].error) if worst else None
    return warn(
        "parked visits",
        f"{counted(total)} in {_names(stages)}, most often: {error}",
        "see 'tidemill stage parked'; mend the cause, then 'tidemill stage redrive STAGE'",
    )


def questions(session: Session) -> Finding:
    """S4: what fails open costs needless visits."""
    failing = sa.select(Stage.kind, Stage.name, Stage.ask_failures, Stage.ask_failure)
    worst = failing.where(_DECLARED, Stage.ask_failures > 0).order_by(Stage.ask_failures.desc())
    rows = session.execute(worst).all()
    if not rows:
        return ok("should_process", "never failed")
    first = rows[0]
    name = f"{first.kind}.{first.name}"
    return warn(
        "should_process",
        f"that of {_names([f'{row.kind}.{row.name}' for row in rows])} raised, so that needless visits are made; "
        f"{first.ask_failures} times in {name}, the last: {first_line(first.ask_failure)}",
        f"mend it, then begin the count anew: tidemill stage reset {shlex.quote(name)}",
    )


def walks(session: Session) -> Finding:
    """S16: walks that could go on and do not, and those that meet errors."""
    mine = sa.and_(ResweepPart.resweep_id == Resweep.id, Resweep.state == ResweepState.RUNNING)
    ready = ResweepPart.ready(Lane.MAIN)

    def of_parts(column: Any, *conditions: Any) -> Any:
        return sa.select(column).where(mine, *conditions).correlate(Resweep).scalar_subquery()

    first_ready = of_parts(sa.func.min(ready), is_waiting(ResweepPart))
    query = sa.select(
        *(Resweep.id, Resweep.kind, Resweep.stage),
        of_parts(sa.func.count(), is_running(ResweepPart)).label("running"),
        # Where workers have much else to do, a part may wait long while others are walked.
        (sa.func.now() - sa.func.greatest(first_ready, of_parts(sa.func.max(ResweepPart.claimed_at)))).label("late"),
        of_parts(sa.func.max(ResweepPart.error)).label("error"),
    )
    rows = session.execute(query.where(Resweep.ended_at.is_(None)).order_by(Resweep.id)).all()
    for row in rows:
        if not row.running and row.late is not None and row.late > STANDS_STILL:
            return fail(
                "resweeps",
                f"that of {row.kind}.{row.stage} stands still since {span(row.late)}: nobody walks on",
                f"start a worker for its queue: celery -A app worker -Q {shlex.quote(f'stage.{row.kind}.resweep')}; "
                f"or cancel it: tidemill stage resweep --cancel {shlex.quote(f'{row.kind}.{row.stage}')}",
            )
    broken = [row for row in rows if row.error is not None]
    if broken:
        return warn(
            "resweeps",
            f"that of {broken[0].kind}.{broken[0].stage} meets errors, the last: {first_line(broken[0].error)}",
            "mend what cannot be read; see 'tidemill stage resweep --status'",
        )
    return ok("resweeps", f"{len(rows)} under way, none stands still" if rows else "none under way")


def shards(session: Session) -> Finding:
    """S13."""
    made = other_shards(session)
    if made is None:
        return ok("shards", f"{settings().shards}, as the database was made with")
    return warn(
        "shards",
        f"TIDEMILL_SHARDS={settings().shards} is ignored: this database was made with {made}",
        f"set TIDEMILL_SHARDS={made}, or leave it out",
    )


def _names(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
