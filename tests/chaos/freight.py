"""Jobs in a storm. What was committed is known from the database itself: whoever puts in a job writes its value in the
same transaction. Of some the effect commits with their end, of others before it, and of some it is not in the database.
"""

from __future__ import annotations

import random
import uuid

import sqlalchemy as sa
from celery import shared_task
from sqlalchemy.orm import Session

from app.jobs.model import JobLog, Outcome
from tests.chaos import journal
from tests.chaos.journal import Notes, note
from tests.kit import tasks
from tidemill import enqueue

SCHEMA = "CREATE TABLE public.produced (value text PRIMARY KEY, task text NOT NULL)"
OPEN = "SELECT count(*) FROM tidemill.job"
_PRODUCED = sa.text("INSERT INTO public.produced VALUES (:value, :task)")
_DONE = sa.text(
    "SELECT value, count(*) AS times FROM public.execution "
    "WHERE task = :task AND (ended_at IS NOT NULL OR task = 'in_transaction') GROUP BY value"
)
_BEGUN = sa.text("SELECT DISTINCT value FROM public.execution WHERE task = :task")


@shared_task
def carry(value: str) -> None:
    note("carry", value)


def promise(session: Session, dice: random.Random) -> None:
    if dice.random() < 0.05:
        enqueue(tasks.noop.s(), session=session, key=f"key:{dice.randrange(50)}", max_attempts=1000)
        return
    value = uuid.UUID(int=dice.getrandbits(128)).hex
    task, call = dice.choice(
        [
            ("record", tasks.record.s(value)),
            ("in_transaction", tasks.in_transaction.s(value)),
            ("carry", carry.s(value)),
        ]
    )
    enqueue(call, session=session, max_attempts=1000, priority=dice.randrange(3))
    session.execute(_PRODUCED, {"value": value, "task": task})


def judge(session: Session, notes: Notes) -> None:
    produced: dict[str, set[str]] = {task: set() for task in ("record", "in_transaction", "carry")}
    for value, task in session.execute(sa.text("SELECT value, task FROM public.produced")):
        produced[task].add(value)
    assert all(produced.values()), "too few jobs for a storm"
    assert session.execute(sa.text("SELECT * FROM tidemill.job")).all() == [], "jobs that were given up"
    for task in ("record", "in_transaction"):
        done = {row.value: row.times for row in session.execute(_DONE, {"task": task})}
        assert done.keys() == produced[task], f"{task}: jobs were lost, or were never committed"
        assert set(session.execute(_BEGUN, {"task": task}).scalars()) == produced[task]
        if task == "in_transaction":
            assert set(done.values()) == {1}, "saved twice, or late, under this_job().transaction()"
    assert journal.told(notes, "carry") == produced["carry"], "jobs were lost, or were never committed"
    values = [value for each in produced.values() for value in each]
    of_these = sa.select(JobLog.args[0].astext, sa.func.count(sa.distinct(JobLog.job_id)))
    done_once = of_these.where(JobLog.outcome == Outcome.DONE).group_by(JobLog.args[0].astext)
    logged = {row[0]: row[1] for row in session.execute(done_once)}
    assert {logged.get(value) for value in values} == {1}, "not every job is in the log as done, once"
