"""The statements over decisions whose time is over: what each of them is, and the one that puts them back.

A sweep takes a thousand at once, and what is handed out again never comes to Python: one statement looks at it under
lock, plans its turns, moves it and its graph, and tells which ones these were.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from app.arrays import Array
from app.claims import storm
from app.prepared import Prepared
from processes.model import DECISION, GRAPH, PREFERENCES, PREFIX, PROCESS, TASK
from processes.statements import FENCE, IDLE, KEY, NOW, span, told
from processes.states import ENDED, DecisionState

#: Between two hand-outs of one that died alone, doubled each time.
DELAY_SECONDS, DELAY_MOST_SECONDS = 1.0, 300.0
MAX_RESTARTS = 10
DIED, SILENT = "died while it had the task", "did not answer within the work_timeout"
#: Of one decision: its key, whether it was in work when it was found, whether it is to be handed out alone, whether the
#: graph of its process is locked.
HELD = KEY | {"in_work": sa.Boolean(), "alone": sa.Boolean(), "graph": sa.Boolean()}

#: Its end was not waited for: its parent has told that it is dead.
_EARLY = sa.literal_column("'100 milliseconds'::interval", sa.Interval)
_IN_WORK = DECISION.c.state == sa.literal_column(f"'{DecisionState.WORK}'")
_OPEN = DECISION.c.state != sa.literal_column(f"'{DecisionState.FINISH}'")
OVERDUE = DECISION.c.recovery_time <= sa.func.now()
_LATE = sa.func.coalesce(DECISION.c.deadline_at <= sa.func.now(), sa.false())


@cache
def locking(*, wait: bool) -> Prepared:
    """The graphs, in the order of their numbers; without `wait` those that nobody holds."""
    ids = sa.bindparam("p_ids", type_=Array(sa.BigInteger))
    query = sa.select(GRAPH.c.process_id).where(GRAPH.c.process_id == sa.any_(ids)).order_by(GRAPH.c.process_id)
    locked = query.with_for_update(skip_locked=not wait).cte("locked")
    return Prepared(f"graphs_of_late_{'waited' if wait else 'free'}", sa.select(_all(locked.c.process_id, "ids")))


@cache
def overdue() -> sa.Select[Any]:
    """Each by itself, and locked."""
    keys = told("keys", HELD)
    return (
        sa.select(
            DECISION.c.process_id,
            DECISION.c.number,
            _IN_WORK.label("in_work"),
            DECISION.c.epoch,
            DECISION.c.pass_key,
            DECISION.c.restarts,
            DECISION.c.claimed_by,
            _LATE.label("late"),
            _died(PREFERENCES.c.work_timeout).label("died"),
            PROCESS.c.state.label("process"),
            TASK.c.actor,
            _ALLOWED.label("restarts_allowed"),
            _sound(keys, TASK.c.actor).label("sound"),
            sa.and_(_sound(keys, TASK.c.actor), _ALLOWED, _again(keys.c.alone, _MOST)).label("again"),
        )
        .select_from(
            keys.join(DECISION, sa.and_(*_of(DECISION, keys)))
            .outerjoin(PROCESS, PROCESS.c.id == keys.c.process_id)
            .outerjoin(TASK, sa.and_(*_of(TASK, keys)))
            .outerjoin(PREFERENCES, PREFERENCES.c.name == TASK.c.actor)
        )
        .where(_OPEN, _over())
        .order_by(DECISION.c.process_id, DECISION.c.number)
        .with_for_update(of=DECISION)
    )


@cache
def restarting() -> Prepared:
    """Of those that are named: puts back what may be handed out again, and tells which it was in groups."""
    queued, moved = restarts(told("keys", HELD), _over())
    by = (queued.c.actor, queued.c.in_work)
    groups = sa.select(*by, *(_all(queued.c[each], f"{each}s") for each in KEY)).group_by(*by)
    return Prepared("decisions_restarted", groups.add_cte(moved))


def restarts(keys: Any, over: sa.ColumnElement[bool]) -> tuple[sa.CTE, sa.CTE]:
    """Parts of a statement: `queued` puts back what may be handed out again, in its turn (R2, R11), and returns it;
    `moved` is what becomes of the graphs. `keys` as `HELD`; `over`: whether the time of a decision is over, looked at
    under its lock. What its task and its process say is read before that: whoever changes these, changes it too."""
    of_type, rate = PREFERENCES.alias("of_type"), sa.bindparam("p_rate", type_=sa.Double)
    # Fenced by OFFSET 0: the planner may think it as well to go through all tasks of each process.
    task = sa.select(TASK.c.actor).where(*_of(TASK, keys)).offset(FENCE).lateral("task")
    allowed = (
        sa.select(
            *(keys.c[name] for name in (*KEY, "in_work", "alone")),
            task.c.actor,
            (sa.literal_column(f"'{PREFIX}.'", sa.Text) + task.c.actor).label("queue"),
            _MOST.label("most"),
            PREFERENCES.c.work_timeout,
            sa.func.coalesce(of_type.c.idle_process_timeout, IDLE).label("idle"),
        )
        .select_from(
            keys.join(task, sa.true())
            .join(PROCESS, PROCESS.c.id == keys.c.process_id)
            .outerjoin(PREFERENCES, PREFERENCES.c.name == task.c.actor)
            .outerjoin(of_type, of_type.c.name == PROCESS.c.name)
        )
        .where(_sound(keys, task.c.actor), _ALLOWED)
        .cte("allowed")
    )
    counted = sa.select(allowed.c.queue, (sa.func.count() / rate).label("span")).where(allowed.c.in_work)
    spans = counted.group_by(allowed.c.queue).cte("spans")
    planned = storm.planning(spans).cte("planned")
    of_queue = planned.c.queue == spans.c.queue
    turns = sa.select(spans.c.queue, spans.c.span, planned.c.ahead).join_from(spans, planned, of_queue).cte("turns")
    turn = storm.turn(turns.c.span, turns.c.ahead, rate).label("turn")
    mine = turns.c.queue == allowed.c.queue
    due = sa.select(*allowed.c, turn).join_from(allowed, turns, mine, isouter=True).cte("due")
    queued = _queued(due, over).cte("queued")
    # R2: it has moved; the graph is not to be looked at for its idleness.
    moved = sa.update(GRAPH).where(GRAPH.c.process_id == queued.c.process_id)
    return queued, moved.values(recovery_time=NOW + queued.c.idle).cte("moved")


def _queued(due: sa.CTE, over: sa.ColumnElement[bool]) -> Any:
    wait = sa.func.least(DELAY_SECONDS * sa.func.power(2, sa.func.least(DECISION.c.restarts, 10)), DELAY_MOST_SECONDS)
    # With so many others, in its turn, which comes after the backoff: a few are ready at once.
    turn = sa.func.coalesce(due.c.turn, 0.0)
    of_batch = sa.func.greatest(DECISION.c.not_before, sa.case((turn > 0, NOW + span(turn))))
    how = sa.case((_died(due.c.work_timeout), DIED), else_=SILENT)
    return (
        sa.update(DECISION)
        .where(*_of(DECISION, due), due.c.in_work == _IN_WORK, _OPEN, over, _again(due.c.alone, due.c.most))
        .values(
            state=DecisionState.QUEUED,
            pass_key=None,
            recovery_time=DECISION.c.deadline_at,
            restarts=sa.case((due.c.alone, DECISION.c.restarts), else_=DECISION.c.restarts + 1),
            alone=sa.or_(due.c.alone, DECISION.c.alone),
            not_before=sa.case((due.c.alone, of_batch), else_=NOW + span(wait + turn)),
            queued_at=NOW,
            error=sa.func.concat("WorkTimeout: ", DECISION.c.claimed_by, " ", how),
        )
        .returning(*(due.c[name] for name in (*KEY, "actor", "in_work", "idle")))
    )


_ALLOWED = sa.func.coalesce(PREFERENCES.c.restart_after_work_timeout, sa.true())
_MOST = sa.func.coalesce(PREFERENCES.c.max_restarts, MAX_RESTARTS)


def _of(table: sa.Table, rows: Any) -> tuple[sa.ColumnElement[bool], ...]:
    return tuple(table.c[name] == rows.c[name] for name in KEY)


def _over() -> sa.ColumnElement[bool]:
    given_up = sa.bindparam("p_given_up", type_=sa.Uuid)
    return sa.case((given_up.is_not(None), DECISION.c.pass_key == given_up), else_=OVERDUE)


def _sound(keys: Any, actor: Any) -> sa.ColumnElement[bool]:
    """Whether there is all that it takes to hand it out."""
    # One by one: a list is written anew for each execution, and a prepared statement is not.
    goes_on = sa.and_(*(PROCESS.c.state != sa.literal_column(f"'{ended}'") for ended in ENDED))
    return sa.and_(keys.c.graph, actor.is_not(None), sa.func.coalesce(goes_on, sa.false()))


def _again(alone: Any, most: Any) -> sa.ColumnElement[bool]:
    # Also of a batch, which is not charged: it is a matter of its time.
    return sa.and_(~_LATE, sa.or_(alone, DECISION.c.restarts < most))


def _died(work_timeout: Any) -> sa.ColumnElement[bool]:
    return sa.func.coalesce(DECISION.c.recovery_time < DECISION.c.claimed_at + work_timeout - _EARLY, sa.false())


def _all(column: Any, name: str) -> Any:
    return sa.func.array_agg(column, type_=ARRAY(column.type)).label(name)
