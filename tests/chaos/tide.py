"""Reactive tasks in a storm: parameters that move forward, some of them in transactions that are rolled back, and what
must be true of the increments that tasks were given, whatever broke."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import BadRequest
from tests.kit import warehouse as w
from triggers import ctl, operate

#: Those whose parameters are moved; `mart` is fed by `exact`, and `apart` by long transactions only: nobody else has to
#: wait for their locks.
FED, LATE = ("exact", "plain", "silent"), "apart"
EXACTLY_ONCE, AT_LEAST_ONCE = ("exact", "mart"), ("plain", "silent", LATE)
TASKS = (*EXACTLY_ONCE, *AT_LEAST_ONCE)

SCHEMA = "CREATE TABLE public.advanced (task text, step bigint)"
_PAIRS = ", ".join(f"('{w.full_name(task)}', '{w.source(task)}')" for task in TASKS)
OPEN = (
    "SELECT (SELECT count(*) FROM tidemill.run WHERE state IN ('waiting', 'running')) + "  # noqa: S608
    f"(SELECT count(*) FROM (VALUES {_PAIRS}) AS each (task, entity) JOIN tidemill.ctl USING (entity) "
    "LEFT JOIN tidemill.ctl_seen AS seen USING (task, entity, parameter) "
    f"WHERE parameter = '{w.PARAMETER}' AND ctl.value IS DISTINCT FROM seen.value)"
)
_ADVANCED = sa.text("INSERT INTO public.advanced VALUES (:task, :step)")


def promise(session: Session, dice: random.Random) -> None:
    _advance(session, dice.choice(FED))


def promise_late(session: Session) -> None:
    _advance(session, LATE)


def _advance(session: Session, task: str) -> None:
    step = (datetime.now(UTC) - w.BEGIN) // w.STEP
    session.execute(_ADVANCED, {"task": task, "step": step})
    ctl.advance(w.source(task), session=session, loaded_to=w.at(step))


def cancel_one(dice: float) -> None:
    """By an operator: what it was to process is not seen, and is processed after the next change of its input."""
    with suppress(BadRequest):  # it has no run just now
        operate.cancel(w.full_name(TASKS[int(dice * len(TASKS))]), reason="by the storm")


def release() -> None:
    """What was cancelled last has no more input to wait for."""
    for task in TASKS:
        operate.release(w.full_name(task))


def judge(session: Session) -> None:
    for task in EXACTLY_ONCE:
        _increments_tile_time(session, task)
    for task in AT_LEAST_ONCE:
        _nothing_is_left_between(session, task)
    for task in (*FED, LATE):
        given = {until for _, until in w.steps(session, task)}
        query = sa.text("SELECT step FROM public.advanced WHERE task = :task")
        committed = set(session.execute(query, {"task": task}).scalars())
        assert committed or task == LATE, f"{task} was never fed"
        assert bool(given) == bool(committed), f"{task} has not run"
        assert given - committed == set(), f"{task} was given values that were rolled back"
    states = set(session.execute(sa.text("SELECT DISTINCT state::text FROM tidemill.run")).scalars())
    assert states <= {"done", "cancelled", "lapsed"}, states


def _increments_tile_time(session: Session, task: str) -> None:
    reached: int | None = None
    for since, until in w.steps(session, task, ended=True):
        assert since == reached, f"{task}: from {reached} on was given as ({since}, {until}]"
        assert reached is None or until > reached
        reached = until
    assert reached == _value(task), f"{task} ended at {reached}"


def _nothing_is_left_between(session: Session, task: str) -> None:
    reached: int | None = None
    for since, until in w.steps(session, task, ended=True):
        assert since is None or (reached is not None and since <= reached), f"{task}: {reached} to {since}"
        reached = until if reached is None else max(reached, until)
    assert reached == _value(task), f"{task} ended at {reached}"


def _value(task: str) -> int | None:
    value = ctl.get(w.source(task), w.PARAMETER)
    return None if value is None else (value - w.BEGIN) // w.STEP
