"""Jobs in each state, what has run, and timetables, for the pages of them; what a producer may write is hostile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import limits, workers
from app.db import engine
from app.jobs.model import JOB, JOB_LOG, KnownTask, PeriodicJob
from app.shares import Scheduler


def fill(evil: str) -> dict[str, Any]:
    with Session(engine()) as session:
        found = {
            "waiting_job": job(session, "shop.mail", args=["secret-less", evil], kwargs={evil: evil}),
            "parked_job": job(session, "shop.charge", state="parked", error="the bank says 503", attempts=4),
            "running_job": _running(session),
            "hostile_job": job(session, evil, queue=evil, key=evil, state="parked", error=evil, args=[evil]),
        }
        job(session, "shop.mail", due_at=sa.func.now() + timedelta(hours=1), key="mail-7")
        found["ended_job"] = 900_001
        entry(session, 900_001, "shop.charge", "failed", error=evil, traceback=f"Trace\n{evil}", args=[evil])
        entry(session, found["parked_job"], "shop.charge", "failed", error="the bank says 503")
        entry(session, 900_002, evil, "done", queue=evil, key=evil, worker=evil, result=evil)
        _timetable(session, "shop.report", cron="0 6 * * *")
        _timetable(session, evil, every=timedelta(minutes=5), paused=True)
        limits.configure(session, "jobs", rate="10/s", burst=5)
        limits.configure(session, evil, paused=True)
        session.execute(sa.insert(Scheduler).values(name="scheduler-1/9.abc"))
        workers.beat(session.connection(), "worker-2@host", ["mail"], 2, 2)
        # The worker may be gone before a slow machine has looked at it; its queue is still known.
        session.execute(sa.insert(KnownTask).values(name="shop.mail", queue="mail", max_attempts=4))
        session.commit()
    return found


def job(session: Session, task: str, **values: Any) -> int:
    words = {"task": task, "queue": "jobs", "args": [], "kwargs": {}} | values
    return int(session.execute(sa.insert(JOB).values(**words).returning(JOB.c.id)).scalar_one())


def _running(session: Session) -> int:
    claim = {"pass_key": sa.func.gen_random_uuid(), "recovery_time": sa.func.now() + timedelta(hours=1)}
    return job(
        session, "shop.charge", state="running", claimed_by="worker-1@host/7.x", claimed_at=sa.func.now(), **claim
    )


def entry(session: Session, job_id: int, task: str, outcome: str, **values: Any) -> int:
    words = {"queue": "jobs", "args": [], "kwargs": {}, "rank": 0, "max_attempts": 4, "worker": "worker-1@host/7.x"}
    words |= {"job_id": job_id, "task": task, "outcome": outcome, "attempt": 1, "enqueued_at": sa.func.now()} | values
    return int(session.execute(sa.insert(JOB_LOG).values(**words).returning(JOB_LOG.c.id)).scalar_one())


def _timetable(session: Session, name: str, **values: Any) -> None:
    words = {"name": name, "task": name, "args": [], "kwargs": {}, "queue": "jobs", "rank": 0, "max_attempts": 4}
    words |= {"tz": "UTC", "catch_up": "last", "next_at": sa.func.now() + timedelta(hours=1)}
    session.execute(sa.insert(PeriodicJob).values(**words | values))
