"""What the tables of reactive work refuse by themselves."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.jobs.model import Job
from triggers.model import ReactiveLeaf, ReactiveTask, RunState, TaskRun

T = datetime(2026, 7, 1, tzinfo=UTC)
CLAIM: dict[str, Any] = {"pass_key": uuid.UUID(int=1), "recovery_time": T}


def add_task(session: Session, name: str = "m.task", **columns: Any) -> int:
    values: dict[str, Any] = {"module": "m", "pool": "p", "priority": 0, "trigger": {}, "shape": "s", "produces": []}
    values |= {"first_run": "fire", "on_lapse": "drop", "max_failures": 5, "backoff": timedelta(seconds=1), "code": "c"}
    made = sa.insert(ReactiveTask).values(name=name, **values | columns).returning(ReactiveTask.id)
    return session.execute(made).scalar_one()


def add_run(session: Session, task: str = "m.task", state: RunState = RunState.WAITING, **columns: Any) -> int:
    values: dict[str, Any] = {"task": task, "queue": "reactive.p", "priority": 0, "generation": 0, "state": state}
    return session.execute(sa.insert(TaskRun).values(**values | columns).returning(TaskRun.id)).scalar_one()


@pytest.mark.parametrize("first", [RunState.WAITING, RunState.RUNNING])
@pytest.mark.parametrize("second", [RunState.WAITING, RunState.RUNNING])
def test_a_task_has_one_live_run(session: Session, first: RunState, second: RunState) -> None:
    # T16
    add_run(session, state=RunState.DONE)
    add_run(session, state=first, **CLAIM if first is RunState.RUNNING else {})
    add_run(session, "m.other")
    add_run(session, state=RunState.LAPSED)
    with pytest.raises(IntegrityError, match="run_one_live"):
        add_run(session, state=second, **CLAIM if second is RunState.RUNNING else {})


@pytest.mark.parametrize("state", RunState)
def test_a_run_has_a_pass_exactly_while_it_runs(session: Session, state: RunState) -> None:
    wrong: list[dict[str, Any]] = [{}] if state is RunState.RUNNING else [CLAIM]
    for columns in (*wrong, {"pass_key": CLAIM["pass_key"]}, {"recovery_time": T}):
        with pytest.raises(IntegrityError, match="run_claimed_exactly_while_running"), session.begin_nested():
            add_run(session, state=state, **columns)
    assert add_run(session, state=state, **CLAIM if state is RunState.RUNNING else {})


def test_a_window_has_two_ends(session: Session) -> None:
    ends: list[dict[str, Any]] = [{"window_from": T}, {"window_to": T}]
    for columns in ends:
        with pytest.raises(IntegrityError, match="run_window_has_two_ends"), session.begin_nested():
            add_run(session, **columns)
    assert add_run(session, window_from=T, window_to=T)


@pytest.mark.parametrize(("column", "known"), [("first_run", {"fire", "baseline"}), ("on_lapse", {"drop", "run"})])
def test_words_that_nobody_knows_are_refused(session: Session, column: str, known: set[str]) -> None:
    for word in known:
        assert add_task(session, f"m.{word}", **{column: word})
    with pytest.raises(IntegrityError, match=f"reactive_task_{column}_known"):
        add_task(session, **{column: "Fire"})


def test_two_tasks_have_two_ids(session: Session) -> None:
    first = add_task(session, "m.first")
    assert add_task(session, "m.second") != first
    with pytest.raises(IntegrityError, match="reactive_task_id_key"):
        add_task(session, "m.third", id=first)


def test_a_leaf_belongs_to_a_task(session: Session) -> None:
    task_id = add_task(session)
    leaf = {"position": 0, "entity": "e", "parameter": "p", "latched": True}
    session.execute(sa.insert(ReactiveLeaf).values(task_id=task_id, **leaf))
    session.execute(sa.delete(ReactiveTask))
    assert session.scalars(sa.select(ReactiveLeaf)).all() == []
    with pytest.raises(IntegrityError, match="reactive_leaf_task_id_fkey"):
        session.execute(sa.insert(ReactiveLeaf).values(task_id=task_id, **leaf))


@pytest.mark.parametrize("queue", ["reactive.marts", "stage.offer.expire", "actor.charge"])
def test_no_job_waits_in_a_queue_of_another_domain(session: Session, queue: str) -> None:
    for name in (queue.partition(".")[0], f"my.{queue}"):
        session.execute(sa.insert(Job).values(task="t", queue=name))
    with pytest.raises(IntegrityError, match="job_queue_not_reserved"):
        session.execute(sa.insert(Job).values(task="t", queue=queue))
