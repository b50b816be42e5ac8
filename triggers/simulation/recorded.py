"""The past as a warehouse to simulate: what `ctl_change` has recorded, and the tasks as they are registered now.

How things stood at the beginning is told by what changed after it: the first change of a parameter says what it was
before, and the first run of a task what it had seen. So what retention has removed of the time before is not missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from app.arrays import Array
from app.errors import BadRequest
from app.limits import Queue
from triggers.definition import PREFIX
from triggers.instants import SECOND, Instant, span, to_instant
from triggers.model import RUN, TASK, Ctl, CtlChange, CtlSeen, ReactivePool, ReactiveTask, RunKind, RunState
from triggers.simulation.facts import Change, Pool, Task
from triggers.trigger import from_json
from triggers.values import windows
from triggers.verdict import Parameter

#: Rows of changes that are read at once.
PAGE = 5000


@dataclass(frozen=True)
class Registered:
    """`unreadable`: tasks whose trigger was written by another release."""

    tasks: dict[str, Task]
    unreadable: tuple[str, ...]
    pools: tuple[Pool, ...]
    #: The median of the runs that ended well.
    lengths: dict[str, Instant]


@dataclass(frozen=True)
class Past:
    """`runs`: how many regular runs each task really had."""

    changes: tuple[Change, ...]
    current: dict[Parameter, Instant]
    seen: dict[str, dict[Parameter, Instant]]
    runs: Counter[str]


def now(session: Session) -> datetime:
    """The database's; what is read after this is of one moment."""
    session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    moment: datetime = session.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return moment


def registered(session: Session) -> Registered:
    tasks, unreadable = {}, []
    for row in session.execute(sa.select(*TASK.c).where(ReactiveTask.removed_at.is_(None)).order_by(TASK.c.name)):
        try:
            trigger = from_json(row.trigger)
        except BadRequest:
            unreadable.append(row.name)
            continue
        tasks[row.name] = Task.of(_With(row._mapping, trigger))
    return Registered(tasks, tuple(unreadable), tuple(_pools(session)), _lengths(session))


class _With:
    """A row, with its trigger read."""

    def __init__(self, row: Mapping[Any, Any], trigger: Any) -> None:
        self.__dict__.update({str(key): value for key, value in row.items()}, trigger=trigger)


def _pools(session: Session) -> list[Pool]:
    queue = sa.literal(f"{PREFIX}.") + ReactivePool.name
    rows = session.execute(
        sa.select(ReactivePool, Queue.max_parallel, Queue.rate, Queue.burst)
        .outerjoin(Queue, Queue.name == queue)
        .order_by(ReactivePool.name)
    )
    found = []
    for pool, parallel, rate, burst in rows:
        made = Pool(pool.name, parallel, rate, burst or 1.0, span(pool.ageing))
        # The default lies with the code that declares pools.
        hold = made.max_hold if pool.max_hold is None else span(pool.max_hold)
        found.append(Pool(made.name, parallel, rate, made.burst, made.ageing, hold))
    return found


def _lengths(session: Session) -> dict[str, Instant]:
    length = sa.extract("epoch", RUN.c.ended_at - RUN.c.started_at)
    median = sa.func.percentile_cont(0.5).within_group(length)
    query = sa.select(RUN.c.task, median).where(RUN.c.state == RunState.DONE, RUN.c.started_at.is_not(None))
    return {task: max(0, int(seconds * SECOND)) for task, seconds in session.execute(query.group_by(RUN.c.task))}


def past(session: Session, parameters: Collection[Parameter], since: datetime, until: datetime) -> Past:
    """Of these parameters, and of all tasks."""
    asked = _asked(parameters)
    changes = _changes(session, asked, since, until)
    runs = sa.select(RUN.c.task, sa.func.count()).where(
        RUN.c.kind == RunKind.REGULAR, RUN.c.created_at >= since, RUN.c.created_at < until
    )
    counted: Counter[str] = Counter({row[0]: row[1] for row in session.execute(runs.group_by(RUN.c.task))})
    return Past(changes, _current(session, asked, since), _seen(session, since), counted)


def _asked(parameters: Collection[Parameter]) -> Any:
    columns = [sa.cast([each[place] for each in sorted(parameters)], Array(sa.Text)) for place in (0, 1)]
    return sa.func.unnest(*columns).table_valued("entity", "parameter").render_derived(name="asked")


def _same(model: Any, asked: Any) -> sa.ColumnElement[bool]:
    return sa.and_(model.entity == asked.c.entity, model.parameter == asked.c.parameter)


def _changes(session: Session, asked: Any, since: datetime, until: datetime) -> tuple[Change, ...]:
    c = CtlChange
    query = (
        sa.select(c.changed_at, c.entity, c.parameter, c.value)
        .join(asked, _same(c, asked))
        .where(c.changed_at >= since, c.changed_at < until)
        .order_by(c.changed_at, c.id)
    )
    names: dict[Parameter, Parameter] = {}
    found = []
    for at, entity, parameter, value in session.execute(query, execution_options={"yield_per": PAGE}):
        name = names.setdefault((entity, parameter), (entity, parameter))
        found.append(Change(to_instant(at), name, to_instant(value)))
    return tuple(found)


def _current(session: Session, asked: Any, since: datetime) -> dict[Parameter, Instant]:
    rows = session.execute(sa.select(Ctl.entity, Ctl.parameter, Ctl.value).join(asked, _same(Ctl, asked)))
    found = {(entity, parameter): value for entity, parameter, value in rows}
    c = CtlChange
    first = (
        sa.select(c.entity, c.parameter, c.previous)
        .join(asked, _same(c, asked))
        .where(c.changed_at >= since)
        .ext(distinct_on(c.entity, c.parameter))
        .order_by(c.entity, c.parameter, c.id)
    )
    before = found | {(entity, parameter): value for entity, parameter, value in session.execute(first)}
    return {name: to_instant(value) for name, value in before.items() if value is not None}


def _seen(session: Session, since: datetime) -> dict[str, dict[Parameter, Instant]]:
    found: dict[str, dict[Parameter, Instant]] = {}
    for task, entity, parameter, value in session.execute(
        sa.select(CtlSeen.task, CtlSeen.entity, CtlSeen.parameter, CtlSeen.value)
    ):
        found.setdefault(task, {})[(entity, parameter)] = to_instant(value)
    first = (
        sa.select(RUN.c.task, RUN.c.checked)
        .where(RUN.c.started_at >= since, RUN.c.checked.is_not(None))
        .ext(distinct_on(RUN.c.task))
        .order_by(RUN.c.task, RUN.c.started_at, RUN.c.id)
    )
    for task, checked in session.execute(first):
        seen = found.setdefault(task, {})
        for name, (before, _) in windows(checked).items():
            seen.pop(name, None)
            if before is not None:
                seen[name] = to_instant(before)
    return found
