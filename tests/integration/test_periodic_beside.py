"""A stranger's open transaction that has to do with the waiting job of one timetable delays that one only (J9)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.jobs import cancel, enqueue, periodic, prioritize, schedules, snooze
from app.jobs.model import Job, PeriodicJob
from app.jobs.schedules import Report, run_once
from tests.kit.faults import pause_at
from tests.kit.rows import count
from tests.kit.tasks import noop

NAMES = ("a", "b", "c")
KEY = "periodic:a"


@pytest.fixture(autouse=True)
def _nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "declared", {})


def declare(*names: str) -> None:
    for name in names:
        periodic(noop.s(), every="1h", name=name)


def come_due(session: Session) -> None:
    session.execute(sa.update(PeriodicJob).values(next_at=sa.func.now()))
    session.commit()


def due(session: Session) -> set[str]:
    session.rollback()
    return set(session.execute(sa.select(PeriodicJob.name).where(PeriodicJob.next_at <= sa.func.now())).scalars())


def held(session: Session) -> int:
    session.rollback()
    return session.execute(sa.select(Job.id).where(Job.key == KEY)).scalar_one()


CHANGES: dict[str, Callable[[int, Session], Any]] = {
    "snooze": lambda job, tx: snooze(job, 60, session=tx),
    "prioritize": lambda job, tx: prioritize(job, 5, session=tx),
    "cancel": lambda job, tx: cancel(job, session=tx),
    "enqueue": lambda _, tx: enqueue(noop.s(), key=KEY, session=tx),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whose_waiting_job_is_held_stays_due_and_the_others_fire(session: Session, engine: Engine, change: str) -> None:
    declare(*NAMES)
    run_once()
    come_due(session)
    with Session(engine) as stranger:
        CHANGES[change](held(session), stranger)
        assert run_once() == Report(fired=2, jobs=2, busy=1)
        assert due(session) == {"a"}
        assert run_once() == Report(busy=1)
        stranger.commit()
    assert run_once() == Report(fired=1, jobs=1)
    assert count(session) == 3


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_whose_key_is_enqueued_just_now_stays_due_and_the_others_fire(
    session: Session, engine: Engine, ends: str
) -> None:
    declare(*NAMES)
    with Session(engine) as stranger:
        enqueue(noop.s(), key=KEY, session=stranger)
        assert run_once() == Report(fired=2, jobs=2, busy=1)
        assert due(session) == {"a"}
        getattr(stranger, ends)()
    assert run_once() == Report(fired=1, jobs=1)
    assert count(session) == 3


@pytest.mark.parametrize("change", CHANGES)
def test_a_stranger_who_comes_second_waits_for_the_pass(session: Session, engine: Engine, change: str) -> None:
    """The other order."""
    declare(*NAMES)
    run_once()
    come_due(session)
    job = held(session)

    def meddle() -> None:
        with Session(engine) as stranger:
            CHANGES[change](job, stranger)
            stranger.commit()

    with pause_at("periodic.before_commit") as paused, ThreadPoolExecutor(2) as threads:
        passing = threads.submit(run_once)
        paused.wait()
        second = threads.submit(meddle)
        paused.go_on()
        assert passing.result(60) == Report(fired=3, jobs=3)
        second.result(60)
    assert due(session) == set()
    assert count(session) == (2 if change == "cancel" else 3)


@pytest.mark.parametrize("there", [True, False], ids=["held", "enqueued"])
def test_a_pass_is_bounded_however_many_are_in_the_way(session: Session, engine: Engine, there: bool) -> None:  # noqa: FBT001
    names = [f"p{number}" for number in range(98)]
    declare(*names, "free")
    if there:
        run_once()
        come_due(session)
    with Session(engine) as stranger:
        for name in names:
            enqueue(noop.s(), key=f"periodic:{name}", session=stranger)
        began = time.monotonic()
        assert run_once() == Report(fired=1, jobs=1, busy=98)
        assert time.monotonic() - began < 5
        stranger.rollback()
    assert run_once() == Report(fired=98, jobs=98)


def test_of_one_that_catches_up_all_slots_stay_due(session: Session, engine: Engine) -> None:
    periodic(noop.s(), every="1h", name="a", catch_up="all")
    declare("b")
    first = session.get_one(PeriodicJob, "a").next_at
    session.execute(sa.update(PeriodicJob).values(next_at=first - sa.literal(3) * sa.text("interval '1 hour'")))
    session.commit()
    second = session.execute(sa.select(PeriodicJob.next_at + sa.text("interval '1 hour'")).limit(1)).scalar_one()
    with Session(engine) as stranger:
        enqueue(noop.s(), key=f"periodic:a:{second.isoformat()}", session=stranger)
        assert run_once() == Report(fired=1, jobs=1, busy=1)
        stranger.rollback()
    assert run_once() == Report(fired=1, jobs=4)
