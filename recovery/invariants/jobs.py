"""What holds of jobs, of their log and of timetables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.claims import Lane
from app.claims.model import is_running, is_waiting
from app.jobs import endings
from app.jobs.model import JOB, JOB_LOG, Job, Outcome, PeriodicJob
from recovery import record
from recovery.findings import Verdict
from recovery.invariants.claims import NEVER, Claims, late, newest, of_claims, putting_back
from recovery.invariants.entry import BOUND, Done, Invariant, Key, by_keys, selecting
from recovery.invariants.setting import changed, locked

OVER = (Outcome.DONE, Outcome.CANCELLED, Outcome.EXPIRED, Outcome.ABSORBED)
_WAITS, _RUNS = is_waiting(Job), is_running(Job)
_PARKED: sa.ColumnElement[Any] = sa.literal_column("'parked'")


def _lost(session: Session, keys: Sequence[Key]) -> dict[Key, str]:
    """Before jobs are put back: the log says what became of their claims; a newer one takes the place of its key."""
    ids = [key[0] for key in keys]
    gone = endings.absorbed(session, None, ids)
    left = [each for each in ids if each not in gone]
    endings.log(session, left, Outcome.LOST, error="nobody could have ended it: its claim was damaged")
    return {(each,): "absorbed by a newer one" for each in gone}


JOBS = Claims(Job, "a job", "job", record.JOB, {Lane.MAIN: "due_at"}, before=_lost)

_other = JOB.alias("other")
_two = sa.exists().where(
    _other.c.key == JOB.c.key, _other.c.id > JOB.c.id, _other.c.state == sa.literal_column("'waiting'")
)


def _absorb(session: Session, keys: Sequence[Key]) -> Done:
    ours = [key[0] for key in locked(session, JOB, keys)]
    query = sa.select(JOB.c.id).where(by_keys([JOB.c.id], [(each,) for each in ours]), _WAITS, _two)
    older = session.execute(query).scalars().all() if ours else []
    gone = endings.leave(session, older, Outcome.ABSORBED, error="another one waited with its key") if older else set()
    return Done({(each,): "absorbed by a newer one" for each in gone})


_ended = sa.exists().where(JOB_LOG.c.job_id == JOB.c.id, JOB_LOG.c.outcome.in_(OVER))
_oldest = sa.select(Job.id).order_by(Job.id).limit(BOUND).subquery("oldest")


def _park(session: Session, keys: Sequence[Key]) -> Done:
    """Whether it is to be done again, a person says: its log says that it was."""
    why = "the log says that it has ended: cancel it, or redrive it to have it done again"
    values = {"state": _PARKED, "error": why}
    return Done(dict.fromkeys(changed(session, JOB, keys, sa.and_(_WAITS, _ended), values), "parked"))


_logged = newest(JOB_LOG)
_held = sa.alias(JOB, "held")
_torn = (
    sa.select(_held.c.pass_key)
    .where(_held.c.state == sa.literal_column("'running'"), _held.c.pass_key.is_not(None))
    .group_by(_held.c.pass_key)
    .having(sa.func.count(sa.distinct(_held.c.queue)) > 1)
)

OF_JOBS: tuple[Invariant, ...] = (
    *of_claims(JOBS),
    Invariant(
        "at most one waiting job has a key",
        record.JOB,
        Verdict.REPAIRABLE,
        "job_key_twice",
        selecting(sa.select(Job.id).where(_WAITS, Job.key.is_not(None), _two)),
        "the newest takes the place of the others, which go to the log",
        _absorb,
    ),
    Invariant(
        "a job that ended is not in the queue",
        record.JOB,
        Verdict.BROKEN,
        "job_ended_in_queue",
        selecting(
            sa.select(Job.id)
            .join(_oldest, _oldest.c.id == Job.id)
            .where(
                sa.or_(_RUNS, _WAITS), sa.exists().where(JOB_LOG.c.job_id == _oldest.c.id, JOB_LOG.c.outcome.in_(OVER))
            )
        ),
        "parked; while it runs, left to its end",
        _park,
        bound=BOUND,
    ),
    Invariant(
        "a job ended well at most once",
        record.JOB,
        Verdict.BROKEN,
        "job_done_twice",
        selecting(
            sa.select(_logged.c.job_id)
            .where(_logged.c.outcome == Outcome.DONE)
            .group_by(_logged.c.job_id)
            .having(sa.func.count() > 1)
        ),
        "nothing: what was done is done; the log forgets it in time",
        bound=BOUND,
    ),
    Invariant(
        "a pass is held by one queue",
        record.JOB,
        Verdict.REPAIRABLE,
        "job_pass_torn",
        selecting(sa.select(Job.id).where(_RUNS, Job.pass_key.in_(_torn))),
        "put back to where the normal claim finds them",
        putting_back(JOBS, sa.and_(_RUNS, JOB.c.pass_key.in_(_torn))),
    ),
    Invariant(
        "the time of a job comes",
        record.JOB,
        Verdict.DIAGNOSIS,
        "job_never_due",
        selecting(sa.select(Job.id).where(_WAITS, Job.due_at == NEVER, Job.id.in_(sa.select(_oldest.c.id)))),
        "whoever asked for 'infinity' snoozes it to a time that comes, or cancels it",
        bound=BOUND,
    ),
    Invariant(
        "no job is parked",
        record.JOB,
        Verdict.DIAGNOSIS,
        "job_parked",
        selecting(sa.select(Job.id).where(Job.state == _PARKED)),
        "an operator: tidemill job retry",
    ),
    Invariant(
        "a timetable fires when its slot comes",
        record.JOB,
        Verdict.DIAGNOSIS,
        "timetable_late",
        selecting(
            lambda: sa.select(PeriodicJob.name).where(~PeriodicJob.paused, late(PeriodicJob.__table__.c.next_at))
        ),
        "a scheduler, or beat with a worker for the queue 'control', fires it",
    ),
)
