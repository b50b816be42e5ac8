"""Making runs and storing what they rest on, in one statement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.arrays import Array
from app.doorbell import GENERIC
from app.jobs.enqueue import ring_after_commit
from app.prepared import Prepared
from triggers.definition import queue_of
from triggers.model import LIVE, RUN, TASK, Evaluation, RunId, TaskRun


@dataclass(frozen=True)
class Decision:
    """`task`: its locked row. `snapshot`: the values that it rests on."""

    task: Row[Any]
    fired: bool
    snapshot: list[list[str | None]]


_COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "task": sa.Text(),
    "fired": sa.Boolean(),
    "snapshot": sa.Text(),
    "queue": sa.Text(),
    "priority": sa.SmallInteger(),
    "rank": sa.SmallInteger(),
    "generation": sa.BigInteger(),
}


def launch(session: Session, decisions: Sequence[Decision], at: datetime, cause: str) -> dict[str, RunId]:
    """Makes a run for each that fired, and stores all of them. Returns the runs by task."""
    if not decisions:
        return {}
    rows = [
        (
            *(each.task.name, each.fired, json.dumps(each.snapshot), queue_of(each.task.pool)),
            *(each.task.priority, -each.task.priority, each.task.generation),
        )
        for each in decisions
    ]
    columns = {f"p_{name}": list(column) for name, column in zip(_COLUMNS, zip(*rows, strict=True), strict=True)}
    made = _launching().execute(session.connection(), {**columns, "p_at": at, "p_cause": cause}).all()
    for queue in {row.queue for row in made}:
        ring_after_commit(session, queue, GENERIC)
    return {row.task: RunId(row.id) for row in made}


@cache
def _launching() -> Prepared:
    told = (
        sa.func.unnest(*(sa.bindparam(f"p_{name}", type_=Array(kind)) for name, kind in _COLUMNS.items()))
        .table_valued(*(sa.column(name, kind) for name, kind in _COLUMNS.items()))
        .render_derived(name="told")
    )
    of_run = ("task", "queue", "priority", "rank", "generation")
    insert = postgresql.insert(TaskRun).from_select(
        list(of_run), sa.select(*(told.c[name] for name in of_run)).where(told.c.fired)
    )
    # The lock of the task rules out all who keep to it; an older release need not.
    insert = insert.on_conflict_do_nothing(index_elements=[TaskRun.task], index_where=LIVE)
    made = insert.returning(RUN.c.id, RUN.c.task, RUN.c.queue).cte("made")
    changed = sa.or_(~told.c.fired, made.c.id.is_not(None))
    stored = {
        "task": told.c.task,
        "at": sa.bindparam("p_at", type_=TIMESTAMP(timezone=True)),
        "fired": told.c.fired,
        "cause": sa.bindparam("p_cause", type_=sa.Text),
        "run_id": made.c.id,
        "trigger": TASK.c.trigger,
        "values": sa.cast(told.c.snapshot, JSONB),
    }
    with_runs = told.outerjoin(made, made.c.task == told.c.task)
    outcome = sa.select(*stored.values()).select_from(with_runs.join(TASK, TASK.c.name == told.c.task)).where(changed)
    kept = sa.insert(cast(sa.Table, Evaluation.__table__)).from_select(list(stored), outcome).cte("kept")
    outcomes = sa.select(told.c.task, told.c.fired).select_from(with_runs).where(changed).subquery("outcomes")
    marked = sa.update(TASK).where(TASK.c.name == outcomes.c.task).values(fired=outcomes.c.fired).cte("marked")
    return Prepared("runs_launched", sa.select(made.c.id, made.c.task, made.c.queue).add_cte(kept, marked))


def begin(session: Session, run: Row[Any], seen_epoch: int | None, check: Check) -> bool:
    """The check that counts, that of the worker which took the run: on the run, and as an evaluation. Whether the claim
    still holds."""
    parameters = {
        "p_id": run.id,
        "p_pass_key": run.pass_key,
        "p_seen_epoch": seen_epoch,
        "p_at": check.at,
        "p_fired": check.fired,
        "p_trigger": json.dumps(check.trigger),
        "p_snapshot": json.dumps(check.snapshot),
    }
    return _beginning().execute(session.connection(), parameters).first() is not None


@dataclass(frozen=True)
class Check:
    """A verdict with all that it rests on, as it is stored."""

    trigger: dict[str, Any]
    at: datetime
    fired: bool
    snapshot: list[list[str | None]]


@cache
def _beginning() -> Prepared:
    snapshot = sa.cast(sa.bindparam("p_snapshot", type_=sa.Text), JSONB)
    mine = sa.and_(RUN.c.id == sa.bindparam("p_id"), RUN.c.pass_key == sa.bindparam("p_pass_key", type_=sa.Uuid))
    values = {
        "checked": snapshot,
        "seen_epoch": sa.bindparam("p_seen_epoch", type_=sa.BigInteger),
        "started_at": sa.func.coalesce(RUN.c.started_at, sa.func.clock_timestamp()),
    }
    begun = sa.update(RUN).where(mine).values(**values).returning(RUN.c.id, RUN.c.task).cte("begun")
    stored = {
        "task": begun.c.task,
        "at": sa.bindparam("p_at", type_=TIMESTAMP(timezone=True)),
        "fired": sa.bindparam("p_fired", type_=sa.Boolean),
        "cause": sa.literal("claim"),
        "run_id": begun.c.id,
        "trigger": sa.cast(sa.bindparam("p_trigger", type_=sa.Text), JSONB),
        "values": snapshot,
    }
    kept = sa.insert(cast(sa.Table, Evaluation.__table__)).from_select(list(stored), sa.select(*stored.values()))
    return Prepared("run_begun", sa.select(begun.c.id).add_cte(kept.cte("kept")))


def store(session: Session, task: str, run_id: int, check: Check) -> None:
    """The same of a run that is dropped."""
    row = {"task": task, "at": check.at, "fired": check.fired, "cause": "claim", "run_id": run_id}
    session.execute(sa.insert(Evaluation).values(**row, trigger=check.trigger, values=check.snapshot))
