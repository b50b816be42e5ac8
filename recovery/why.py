"""Why a process does not move: what `explaining` needs to know, in a handful of queries, however many its tasks are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import limits
from app.arrays import Array
from app.claims import Lane
from app.claims.model import is_running, is_waiting
from processes.model import DECISION, GRAPH, PREFERENCES, PREFIX, PROCESS, Decision
from processes.shown import Shown
from recovery import explaining, facts, known
from recovery.diagnose import diagnose
from recovery.explaining import COUNTED, Look, QueueLook, Reason, Span
from recovery.findings import Finding
from recovery.queues import Surroundings

_QUEUE = cast(sa.Table, limits.Queue.__table__)


def stands(session: Session, shown: Shown, span: Span) -> tuple[Reason, ...]:
    """In the transaction in which it was shown, so that all of this is of one moment."""
    connection = session.connection()
    [process] = facts.load(connection, [shown.id])
    around = facts.surroundings(connection, [process])
    findings = diagnose(process, around)
    if not findings:
        return ()
    times = sa.select(GRAPH.c.changed_at, sa.func.least(GRAPH.c.recovery_time, PROCESS.c.recovery_time).label("until"))
    of_both = PROCESS.outerjoin(GRAPH, GRAPH.c.process_id == PROCESS.c.id)
    row = session.execute(times.select_from(of_both).where(PROCESS.c.id == shown.id)).one()
    queues = _queues(session, shown, findings, around)
    look = Look(around.now, queues, row.changed_at, row.until, known.listed(session))
    return explaining.explain(shown, findings, look, span)


def _queues(session: Session, shown: Shown, findings: Sequence[Finding], around: Surroundings) -> dict[str, QueueLook]:
    due = {task.number: task.due_at for task in shown.tasks}
    first = {
        each.queue: min((moment for number in each.tasks if (moment := due.get(number))), default=around.now)
        for each in findings
        if each.queue is not None
    }
    if not first:
        return {}
    rows = session.execute(
        _looked(), {"p_queues": list(first), "p_first": list(first.values()), "p_rank": -shown.priority}
    )
    return {
        row.queue: QueueLook(
            slots=around.queue(row.queue).slots,
            polled_at=around.queue(row.queue).polled_at,
            **{name: value for name, value in row._mapping.items() if name != "queue" and value is not None},
        )
        for row in rows
    }


def _looked() -> sa.Select[Any]:
    wanted = (
        sa.func.unnest(
            sa.bindparam("p_queues", type_=Array(sa.Text)),
            sa.bindparam("p_first", type_=Array(sa.DateTime(timezone=True))),
        )
        .table_valued(sa.column("queue", sa.Text), sa.column("first", sa.DateTime(timezone=True)))
        .render_derived(name="wanted")
    )
    ready, rank = Decision.ready(Lane.MAIN), sa.bindparam("p_rank", type_=sa.SmallInteger)
    of_queue = DECISION.c.queue == wanted.c.queue
    # What is not due yet comes before others in the index, and is no work before it: it counts for how much is read.
    before = sa.tuple_(DECISION.c.rank, ready) < sa.tuple_(rank, wanted.c.first)
    ahead = sa.select((ready <= sa.func.now()).label("due")).where(of_queue, is_waiting(Decision), before)
    in_work: sa.Select[Any] = sa.select(sa.literal_column("1")).where(of_queue, is_running(Decision))
    rows = [each.limit(COUNTED + 1).correlate(wanted).subquery() for each in (ahead, in_work)]
    settings = ("outside", "restart_after_work_timeout", "max_restarts")
    return sa.select(
        wanted.c.queue,
        sa.select(sa.func.count()).select_from(rows[0]).where(rows[0].c.due).scalar_subquery().label("ahead"),
        sa.select(sa.func.count()).select_from(rows[1]).scalar_subquery().label("in_work"),
        *(_QUEUE.c[name] for name in ("max_parallel", "rate", "rests_why", "rests_until")),
        *(PREFERENCES.c[name] for name in settings),
        PREFERENCES.c.removed_at.is_not(None).label("removed"),
    ).select_from(
        wanted.outerjoin(_QUEUE, _QUEUE.c.name == wanted.c.queue).outerjoin(
            PREFERENCES, sa.literal_column(f"'{PREFIX}.'") + PREFERENCES.c.name == wanted.c.queue
        )
    )
