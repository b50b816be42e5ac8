"""Old runs and evaluations go, in batches; the last of each task stays."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.settings import settings
from triggers import retention
from triggers.model import RUN, Evaluation, RunState


def _put(session: Session, task: str, age: timedelta) -> None:
    at = sa.func.now() - age
    session.execute(
        sa.insert(RUN).values(task=task, queue="reactive.x", priority=0, generation=0, state=RunState.DONE, ended_at=at)
    )
    values = {"task": task, "at": at, "fired": True, "cause": "polling", "trigger": {}, "values": []}
    session.execute(sa.insert(Evaluation).values(values))
    session.commit()


def test_what_is_over_age_goes_but_the_last_of_each_task_stays(session: Session) -> None:
    old, young = settings().log_retention * 2, timedelta(seconds=1)
    for task, age in (("a", old), ("a", old), ("a", young), ("b", old), ("b", old)):
        _put(session, task, age)
    report = retention.run_once()
    assert (report.runs, report.evaluations) == (3, 3)
    left = session.execute(sa.select(RUN.c.task).order_by(RUN.c.task)).scalars().all()
    assert left == ["a", "b"]


def test_a_pass_is_bounded_and_says_that_there_is_more(session: Session) -> None:
    for _ in range(4):
        _put(session, "a", settings().log_retention * 2)
    assert retention.run_once(limit=2) == retention.Report(2, 2, more=True)
    assert retention.run_once(limit=2) == retention.Report(1, 1)
