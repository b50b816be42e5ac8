"""The reactive part of a storm: producers that move parameters forward, some of them in transactions that are rolled
back, and what must be true of the increments that tasks were given, whatever broke."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import db
from app.errors import BadRequest, DatabaseError, MovesBack
from tests.kit import warehouse as w
from tests.kit.waiting import pause
from tidemill import transaction
from triggers import ctl, operate

PRODUCERS = 3
#: Those whose parameters the producers move; `mart` is fed by `exact`.
FED = ("exact", "plain", "silent")
EXACTLY_ONCE, AT_LEAST_ONCE = ("exact", "mart"), ("plain", "silent")
TASKS = (*EXACTLY_ONCE, *AT_LEAST_ONCE)

SCHEMA = """
CREATE TABLE public.advanced (task text, step bigint);
CREATE TABLE public.stolen_run (run_id bigint, before uuid, after uuid);
CREATE FUNCTION public.note_theft_of_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.stolen_run VALUES (old.id, old.pass_key, new.pass_key);
    RETURN new;
END $$;
CREATE TRIGGER note_theft AFTER UPDATE ON tidemill.run FOR EACH ROW
    WHEN (old.pass_key IS NOT NULL AND new.pass_key IS NOT NULL AND old.pass_key <> new.pass_key)
    EXECUTE FUNCTION public.note_theft_of_run();
"""


class _RolledBack(Exception):
    """On purpose."""


class Tide:
    def __init__(self, seed: int, told: Counter[str]) -> None:
        self.told = told
        self.over = threading.Event()
        self._producers = [
            threading.Thread(target=self._produce, args=(random.Random(f"{seed}/tide/{number}"),))
            for number in range(PRODUCERS)
        ]

    def rise(self) -> None:
        for producer in self._producers:
            producer.start()

    def ebb(self) -> None:
        self.over.set()
        for producer in self._producers:
            producer.join(60)

    def _produce(self, dice: random.Random) -> None:
        while not self.over.is_set():
            task = dice.choice(FED)
            try:
                self._advance(task, lost=dice.random() < 0.2)
                self.told["advanced"] += 1
            except MovesBack:
                # Another producer was there first.
                self.told["moves back"] += 1
            except _RolledBack:
                self.told["advance rolled back"] += 1
            except (DatabaseError, SQLAlchemyError):
                self.told["database away from the tide"] += 1
                pause(0.05)
            pause(dice.random() * 0.1)

    def _advance(self, task: str, *, lost: bool) -> None:
        step = (datetime.now(UTC) - w.BEGIN) // w.STEP
        with transaction() as session:
            session.execute(sa.text("INSERT INTO public.advanced VALUES (:task, :step)"), {"task": task, "step": step})
            ctl.advance(w.source(task), session=session, loaded_to=w.at(step))
            if lost:
                raise _RolledBack

    def cancel_one(self, dice: random.Random) -> None:
        """By an operator: what it was to process is not seen, and is processed after the next change of its input."""
        with suppress(BadRequest, DatabaseError, SQLAlchemyError):
            operate.cancel(w.full_name(dice.choice(TASKS)), reason="by the storm")
            self.told["cancelled"] += 1

    def release(self) -> None:
        """What was cancelled last has no more input to wait for."""
        for task in TASKS:
            operate.release(w.full_name(task))

    def at_rest(self) -> bool:
        live = sa.text("SELECT count(*) FROM tidemill.run WHERE state IN ('waiting', 'running')")
        with Session(db.engine()) as session:
            seen = all(w.last_seen(session, task) == ctl.get(w.source(task), w.PARAMETER) for task in TASKS)
            return seen and session.execute(live).scalar_one() == 0

    def judge(self) -> None:
        with Session(db.engine()) as session:
            self._increments_tile_time(session)
            self._nothing_is_left_between(session)
            self._only_what_was_committed(session)
            assert session.execute(sa.text("SELECT * FROM public.stolen_run")).all() == [], "two valid claims on a run"
            ended = session.execute(sa.text("SELECT state::text, count(*) FROM tidemill.run GROUP BY state"))
            states: dict[str, int] = {row[0]: row[1] for row in ended}
            assert states.keys() <= {"done", "cancelled", "lapsed"}, states
            self.told.update({f"runs {state}": number for state, number in states.items()})

    def _increments_tile_time(self, session: Session) -> None:
        for task in EXACTLY_ONCE:
            reached: int | None = None
            for since, until in w.steps(session, task, ended=True):
                assert since == reached, f"{task}: from {reached} on was given as ({since}, {until}]"
                assert reached is None or until > reached
                reached = until
            assert reached == _value(task), f"{task} ended at {reached}"

    def _nothing_is_left_between(self, session: Session) -> None:
        for task in AT_LEAST_ONCE:
            reached: int | None = None
            for since, until in w.steps(session, task, ended=True):
                assert since is None or (reached is not None and since <= reached), f"{task}: {reached} to {since}"
                reached = until if reached is None else max(reached, until)
            assert reached == _value(task), f"{task} ended at {reached}"

    def _only_what_was_committed(self, session: Session) -> None:
        for task in FED:
            given = {until for _, until in w.steps(session, task)}
            session.rollback()
            query = sa.text("SELECT step FROM public.advanced WHERE task = :task")
            committed = set(session.execute(query, {"task": task}).scalars())
            assert given, f"{task} has not run"
            assert given - committed == set(), f"{task} was given values that were rolled back"


def _value(task: str) -> int:
    value = ctl.get(w.source(task), w.PARAMETER)
    assert value is not None
    return (value - w.BEGIN) // w.STEP
