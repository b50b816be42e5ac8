"""A user's module of processes whose answers get lost, and whose actors raise, by a seed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import faults
from tests.chaos import journal
from tests.chaos.journal import Notes, note
from tidemill import Flow, Promise, Retry, actor, decider, start

TASKS, SHARES = 10, 4
#: Of a hundred.
LOST, RAISED = float(os.environ.get("CARAVAN_LOST", "0")), float(os.environ.get("CARAVAN_RAISED", "0"))
MANY = Retry(max_attempts=50, delay="50ms", most="200ms")
_dice = random.SystemRandom()
#: Every task that comes to its end, however often.
SCHEMA = """
CREATE TABLE public.departed (number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
CREATE TABLE public.accepted (process_id bigint, number int);
CREATE FUNCTION public.note_acceptance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.accepted VALUES (new.process_id, new.number);
    RETURN new;
END $$;
CREATE TRIGGER note_acceptance AFTER UPDATE ON tidemill.task FOR EACH ROW
    WHEN (new.ended_at IS NOT NULL AND new.ended_at IS DISTINCT FROM old.ended_at)
    EXECUTE FUNCTION public.note_acceptance();
"""
OPEN = "SELECT count(*) FROM tidemill.process WHERE state <> 'FINISHED'"
_DEPARTED = sa.text("INSERT INTO public.departed DEFAULT VALUES RETURNING number")
_VALUES = sa.text(
    "SELECT custom_id::int AS number, state::text, value::text::int AS value "
    "FROM tidemill.process WHERE name = 'travel'"
)
_TRAVELS = "JOIN tidemill.process ON process.id = process_id WHERE name = 'travel'"
_ACCEPTED = sa.text(f"SELECT count(*), count(DISTINCT (process_id, number)) FROM public.accepted {_TRAVELS}")  # noqa: S608
_TASKS = sa.text(f"SELECT count(*) FROM tidemill.task {_TRAVELS}")  # noqa: S608


class LostAnswer(Exception):
    """The work is done, and nobody hears of it."""


def _lose(point: str) -> None:
    if point == "task.after_body" and _dice.random() * 100 < LOST:
        raise LostAnswer(point)


if LOST:
    faults.install(_lose)


def _perhaps_raise() -> None:
    if _dice.random() * 100 < RAISED:
        raise RuntimeError("a bad day")


@actor(work_timeout="5s", max_restarts=1000, retry=MANY)
def part(number: int, share: int) -> int:
    _perhaps_raise()
    note("part", f"{number} {share}")
    return number * share


@actor(work_timeout="5s", max_restarts=1000, retry=MANY)
def sum_up(parts: list[int]) -> int:
    _perhaps_raise()
    return sum(parts)


@actor(work_timeout="5s", max_restarts=1000, retry=MANY)
def add(one: int, other: int) -> int:
    note("add", f"{one} {other}")
    _perhaps_raise()
    return one + other


@decider(work_timeout="5s", max_restarts=1000, retry=MANY)
def finish(flow: Flow, found: int) -> Promise[int]:
    """Three calls, and the value of the last."""
    first = flow.call(add, found, 1)
    second = flow.call(add, first, 1)
    return flow.call(add, second, first)


@decider(work_timeout="5s", max_restarts=1000, retry=MANY)
def travel(flow: Flow, number: int) -> Promise[int]:
    """Ten tasks with those of `finish`, and this one."""
    parts = [flow.call(part, number, share) for share in range(1, SHARES + 1)]
    return flow.call(finish, flow.call(sum_up, parts))


def value_of(number: int) -> int:
    found = number * 10
    return (found + 2) + (found + 1)


def promise(session: Session, _: random.Random) -> None:
    number = session.execute(_DEPARTED).scalar_one()
    start(travel, number, custom_id=str(number), session=session)


def judge_departed(session: Session, notes: Notes) -> None:
    """All that were promised; and what was done outside of the database."""
    numbers = session.execute(sa.text("SELECT number FROM public.departed")).scalars().all()
    assert numbers, "too few processes for a storm"
    judge(session, numbers)
    parts = {f"{number} {share}" for number in numbers for share in range(1, SHARES + 1)}
    assert journal.told(notes, "part") == parts, "a task was left out, or one was done that was never committed"


def judge(session: Session, numbers: Iterable[int]) -> None:
    """All travels are these, have finished with the right value, and none of their tasks was accepted twice."""
    found = {row.number: (row.state, row.value) for row in session.execute(_VALUES)}
    assert found == {number: ("FINISHED", value_of(number)) for number in numbers}
    steps = len(found) * TASKS
    assert tuple(session.execute(_ACCEPTED).one()) == (steps, steps), "each task was accepted once"
    assert session.execute(_TASKS).scalar_one() == steps
