"""The record of repairs (R7): written in the transaction that repairs, with its source; counted by finding; kept as
long as the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from app import counters
from app.arrays import Array
from app.checks import limited
from app.claims import Executor
from app.db import transaction
from app.settings import settings
from recovery.model import REPAIR, Repair

PROCESS, VISIT, RUN, JOB = "process", "visit", "run", "job"
DOMAINS = (PROCESS, VISIT, RUN, JOB)
#: Of claims whose worker gave no sign of life in time; of tasks whose actor did not answer in time.
LOST, WORK_TIMEOUT = "lost_claim", "work_timeout"
LIMIT = 10_000


@dataclass(frozen=True)
class Repaired:
    domain: str
    subject: str
    finding: str
    action: str
    detail: Mapping[str, Any] | None = None


def record(executor: Executor, repairs: Sequence[Repaired], operation_id: int | None = None) -> None:
    """At the end of a transaction, once: the counters are locked here. `operation_id` None: done by itself."""
    if not repairs:
        return
    rows = (
        sa.func.unnest(
            *(sa.cast([getattr(each, name) for each in repairs], Array(sa.Text)) for name in _WORDS),
            sa.cast([json.dumps(each.detail) if each.detail else None for each in repairs], Array(sa.Text)),
        )
        .table_valued(*(sa.column(name, sa.Text) for name in (*_WORDS, "detail")))
        .render_derived(name="repaired")
    )
    values: dict[str, Any] = {name: rows.c[name] for name in _WORDS}
    values |= {"detail": sa.cast(rows.c.detail, JSONB), "operation_id": sa.cast(operation_id, sa.BigInteger)}
    executor.execute(sa.insert(Repair).from_select(list(values), sa.select(*values.values())))
    counters.add(executor, Counter(counted(each.finding) for each in repairs))


_WORDS = ("domain", "subject", "finding", "action")


@dataclass(frozen=True)
class RepairedTasks:
    """The same was done to each of these."""

    finding: str
    action: str
    process_ids: Sequence[int]
    numbers: Sequence[int]


def record_tasks(executor: Executor, repairs: Sequence[RepairedTasks]) -> None:
    """As `record`, for thousands that differ in their numbers only."""
    for each in repairs:
        told = (sa.cast(list(each.process_ids), Array(sa.BigInteger)), sa.cast(list(each.numbers), Array(sa.Integer)))
        tasks = sa.func.unnest(*told).table_valued("process_id", "number").render_derived(name="repaired")
        executor.execute(telling(tasks, each.finding, each.action))
    counts = Counter[str]()
    for each in repairs:
        counts[counted(each.finding)] += len(each.numbers)
    counters.add(executor, counts)


def telling(tasks: Any, finding: str, action: str) -> Any:
    """For a statement that repairs tasks itself; who runs it counts them, by the name that `counted` gives."""
    subject = sa.func.concat(tasks.c.process_id, "/", tasks.c.number)
    words = (sa.literal(PROCESS), subject, sa.literal(finding), sa.literal(action))
    return sa.insert(Repair).from_select(_WORDS, sa.select(*words))


def counted(finding: str) -> str:
    return counters.REPAIRED + finding


def listed(
    session: Session,
    *,
    since: datetime | None = None,
    subject: str | None = None,
    operation_id: int | None = None,
    limit: int = 100,
) -> Sequence[sa.Row[Any]]:
    """The latest first; of a process also those of its tasks."""
    query = sa.select(*REPAIR.c).order_by(REPAIR.c.id.desc()).limit(limit)
    if since is not None:
        query = query.where(REPAIR.c.at >= since)
    if subject is not None:
        of_tasks = REPAIR.c.subject.startswith(f"{subject}/", autoescape=True)
        query = query.where(sa.or_(REPAIR.c.subject == subject, of_tasks))
    if operation_id is not None:
        query = query.where(REPAIR.c.operation_id == operation_id)
    return session.execute(query).all()


def recent(session: Session, span: timedelta, *, by_itself: bool = False) -> dict[str, int]:
    """How often each finding was put right, by the index of times; the most frequent first. `by_itself`: without what
    operations did."""
    count = sa.func.count()
    query = sa.select(REPAIR.c.finding, count.label("times")).where(REPAIR.c.at >= sa.func.now() - span)
    query = query.where(REPAIR.c.operation_id.is_(None)) if by_itself else query
    rows = session.execute(query.group_by(REPAIR.c.finding).order_by(count.desc(), REPAIR.c.finding))
    return {row.finding: row.times for row in rows}


@dataclass(frozen=True)
class Report:
    removed: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """Forgets at most `limit` repairs that are older than the log is kept."""
    with transaction() as session:
        first = sa.select(REPAIR.c.id).order_by(REPAIR.c.id).limit(limit)
        old = (
            sa.select(REPAIR.c.id)
            .where(REPAIR.c.id.in_(first), REPAIR.c.at < sa.func.now() - settings().log_retention)
            .with_for_update(skip_locked=True)
            .cte("old")
        )
        gone = session.execute(sa.delete(REPAIR).where(REPAIR.c.id.in_(sa.select(old.c.id))).returning(REPAIR.c.id))
        removed = len(gone.all())
    return Report(removed, more=removed == limit)
