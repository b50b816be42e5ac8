"""The MVP pass (T17): evaluates every enabled task, with a number of queries that does not grow with theirs.

Two steps. The values of all tasks stream through memory a page at a time, as integers, and each trigger is decided by
its shape: that finds the tasks whose outcome differs from what is stored. Those few are then decided again under lock
(`triggers.starting`), and only that decision counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from app import faults
from app.checks import limited
from app.db import transaction
from triggers.instants import Instant, to_instant
from triggers.model import LIVE, Ctl, CtlSeen, ReactiveLeaf, ReactiveTask, TaskRun
from triggers.shape import LeafValues, from_shape
from triggers.starting import UNREADABLE, enabled, start_ready, taking_first

log = logging.getLogger(__name__)

PAGE = 5000
LIMIT = 10_000


@dataclass(frozen=True)
class Report:
    """`hits`: outcomes that differ from what is stored. `started`: new runs. `lapsed`: triggers that held and do not
    any more. `unreadable`: triggers that only a newer release can read."""

    evaluated: int = 0
    hits: int = 0
    started: int = 0
    lapsed: int = 0
    unreadable: int = 0
    more: bool = False


@limited
def run_once(limit: int = LIMIT) -> Report:
    """One pass over all tasks; starts at most `limit`. Any number may run at once."""
    candidates: list[str] = []
    evaluated = 0
    if limit < 1:
        return Report()
    with transaction() as session:
        session.connection().execute(_beginning())
        for tasks, changed in scan(session):
            evaluated += tasks
            candidates += changed
    return _start(candidates, evaluated, limit)


@cache
def _beginning() -> Any:
    """What is there at first is taken for seen. And a cursor is planned for its first rows otherwise, which is the
    slowest way to all of them."""
    return sa.select(sa.func.set_config("cursor_tuple_fraction", "1", True)).add_cte(taking_first().cte("concerned"))


def _start(candidates: list[str], evaluated: int, limit: int) -> Report:
    """Of all candidates: those that do not start, such as what is in quarantine, must not stand before the others."""
    started = lapsed = unreadable = left = at = 0
    while at < len(candidates) and started < limit:
        some = candidates[at : at + PAGE]
        at += len(some)
        with transaction() as session:
            found = start_ready(session, some, most=limit - started)
        faults.reach("start.committed")
        started += len(found.runs)
        lapsed += found.lapsed
        unreadable += found.unreadable
        left += found.left
    return Report(evaluated, len(candidates), started, lapsed, unreadable, more=left > 0 or at < len(candidates))


def scan(session: Session) -> Iterator[tuple[int, list[str]]]:
    """Page by page: how many tasks were evaluated, and which of them are to be decided."""
    now = to_instant(session.execute(sa.select(sa.func.clock_timestamp())).scalar_one())
    stream = _stream(session, _streaming())
    task, name, shape, before = 0, "", "", False
    leaves: list[LeafValues] = []
    for page in stream.partitions():
        tasks, changed = 0, []
        for each, name_, shape_, fired, current, reference, seen in page:
            if each != task:
                if task:
                    tasks += 1
                    if before or _holds(name, shape, now, leaves):
                        changed.append(name)
                task, name, shape, before, leaves = each, name_, shape_, fired, []
            leaves.append((current, reference, seen))
        yield tasks, changed
    if task:
        yield 1, [name] if before or _holds(name, shape, now, leaves) else []


def _holds(task: str, shape: str, now: int, leaves: Sequence[LeafValues]) -> bool:
    try:
        return from_shape(shape).holds(now, leaves)
    except UNREADABLE as error:
        log.debug("%s: %s", task, error)
        # Looked at by itself, where it is told.
        return True


def truths(session: Session, now: Instant) -> Iterator[tuple[str, bool]]:
    """Of every task that is not removed and that this release can read: whether its trigger holds."""
    stream = _stream(session, _streaming(everything=True))
    for _, rows in groupby(stream, itemgetter(0)):
        found = list(rows)
        try:
            holds = from_shape(found[0][2]).holds
        except UNREADABLE:
            continue
        yield found[0][1], holds(now, [(current, reference, seen) for *_, current, reference, seen in found])


def _stream(session: Session, query: Any) -> Any:
    """By the connection: the session would pass every row through its own loading."""
    return session.connection().execute(query, execution_options={"yield_per": PAGE})


@cache
def _streaming(*, everything: bool = False) -> Any:
    """A row for each leaf, those of a task in a row."""
    task, leaf, current, reference = ReactiveTask, ReactiveLeaf, Ctl, aliased(Ctl)
    same = sa.and_(current.entity == leaf.entity, current.parameter == leaf.parameter)
    same_reference = sa.and_(reference.entity == leaf.ref_entity, reference.parameter == leaf.ref_parameter)
    seen = sa.and_(CtlSeen.task == task.name, CtlSeen.entity == leaf.entity, CtlSeen.parameter == leaf.parameter)
    # As a list that is hashed: a join of all tasks would rest on how many runs the planner believes to be live.
    live = sa.select(TaskRun.task).where(LIVE)
    return (
        sa.select(
            task.id,
            task.name,
            task.shape,
            task.fired,
            micros(current.value),
            micros(reference.value),
            micros(CtlSeen.value),
        )
        .join(leaf, leaf.task_id == task.id)
        .outerjoin(current, same)
        .outerjoin(reference, same_reference)
        .outerjoin(CtlSeen, seen)
        .where(task.removed_at.is_(None) if everything else sa.and_(enabled(sa.func.now()), task.name.not_in(live)))
        .order_by(task.id, leaf.position)
    )


def micros(value: Any) -> sa.ColumnElement[int]:
    """As the evaluator counts: an integer is read and compared faster than a datetime. Up to 2**32 seconds a double is
    exact enough to round, and made in a third of the time."""
    double = sa.func.date_part("epoch", value, type_=sa.Double) * 1_000_000
    exact = sa.extract("epoch", value) * 1_000_000
    near = value.between(
        sa.literal_column("'1970-01-01+00'::timestamptz"), sa.literal_column("'2106-01-01+00'::timestamptz")
    )
    return sa.case((near, sa.cast(double, sa.BigInteger)), else_=sa.cast(exact, sa.BigInteger))
