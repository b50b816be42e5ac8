"""The tables of durable jobs: what waits or runs (`job`), what ran (`job_log`), timetables, and the known tasks."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from typing import Any, NewType, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ENUM
from sqlalchemy.orm import Mapped, mapped_column

from app.claims import Claimable, Lane, claim_indexes
from app.db import SCHEMA, Model
from app.jobs.payload import RESERVED
from app.jobs.stored import Stored

JobId = NewType("JobId", int)


class JobState(enum.StrEnum):
    """J6: an enum of Postgres, which refuses any other word."""

    WAITING = "waiting"
    RUNNING = "running"
    PARKED = "parked"


class Outcome(enum.StrEnum):
    """How one execution ended, or why there was none."""

    DONE = "done"
    RETRIED = "retried"  # failed, and waits to be tried again
    FAILED = "failed"  # failed for the last time: the job is parked
    LOST = "lost"  # its worker gave no sign of life in time
    INTERRUPTED = "interrupted"  # handed back by a worker that was stopped
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    ABSORBED = "absorbed"  # a newer job with the same key took its place


def _enum(words: type[enum.StrEnum], name: str) -> ENUM:
    return ENUM(words, name=name, schema=SCHEMA, values_callable=lambda found: [word.value for word in found])


# Rows live for seconds and are updated in place: room on the page, and vacuum by count, not by share of the table.
BUSY = {
    "fillfactor": 70,
    "autovacuum_vacuum_scale_factor": 0.0,
    "autovacuum_vacuum_threshold": 20000,
    "autovacuum_vacuum_cost_delay": 0,
}


class Job(Claimable, Model):
    __tablename__ = "job"
    __table_args__ = ({"postgresql_with": BUSY},)

    NOUN = "job"

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    state: Mapped[JobState] = mapped_column(_enum(JobState, "job_state"), server_default=sa.text("'waiting'"))
    task: Mapped[str]
    #: As `json`, not `jsonb`: what was passed comes back to the letter, floats and \u0000 included.
    args: Mapped[Any] = mapped_column(Stored, server_default=sa.text("'[]'"))
    kwargs: Mapped[Any] = mapped_column(Stored, server_default=sa.text("'{}'"))
    key: Mapped[str | None]
    expires_at: Mapped[datetime | None]
    max_attempts: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("4"))
    enqueued_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    error: Mapped[str | None]
    #: Of whoever put it in, and of the last try (`app.tracing`).
    trace: Mapped[str | None]

    @classmethod
    def exhausted(cls) -> sa.ColumnElement[bool]:
        return cls.attempts >= cls.max_attempts


JOB = cast(sa.Table, Job.__table__)
JOB.append_constraint(
    sa.CheckConstraint(
        "(state = 'running') = (pass_key is not null) and (state = 'running') = (recovery_time is not null)",
        name="claimed_exactly_while_running",
    )
)
# These queues are worked off by others, who know nothing of jobs.
JOB.append_constraint(sa.CheckConstraint(f"queue !~ '{RESERVED}'", name="queue_not_reserved"))
KEY_IS_TAKEN = sa.and_(Job.key.is_not(None), Job.state == sa.literal_column("'waiting'"))
KEY_INDEX = "job_key"
sa.Index(KEY_INDEX, Job.key, unique=True, postgresql_where=KEY_IS_TAKEN)
sa.Index("job_parked", Job.queue, Job.id, postgresql_where=Job.state == sa.literal_column("'parked'"))
claim_indexes(Job, Lane.MAIN)


class JobLog(Model):
    """One row for each execution (J5), with all that is needed to put the job in again."""

    __tablename__ = "job_log"

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    job_id: Mapped[int] = mapped_column(sa.BigInteger, index=True)
    attempt: Mapped[int] = mapped_column(sa.SmallInteger)
    outcome: Mapped[Outcome] = mapped_column(_enum(Outcome, "job_outcome"))
    queue: Mapped[str]
    task: Mapped[str]
    args: Mapped[Any] = mapped_column(Stored)
    kwargs: Mapped[Any] = mapped_column(Stored)
    key: Mapped[str | None]
    rank: Mapped[int] = mapped_column(sa.SmallInteger)
    max_attempts: Mapped[int] = mapped_column(sa.SmallInteger)
    worker: Mapped[str | None]
    enqueued_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    error: Mapped[str | None]
    traceback: Mapped[str | None]
    result: Mapped[Any | None] = mapped_column(Stored)

    __table_args__ = (
        sa.Index("job_log_ended_at", "ended_at"),
        sa.Index("job_log_task", "task", "ended_at"),
        sa.Index("job_log_not_done", "outcome", "ended_at", postgresql_where=sa.literal_column("outcome <> 'done'")),
        {"postgresql_with": {"autovacuum_vacuum_insert_scale_factor": 0.05}},
    )


JOB_LOG = cast(sa.Table, JobLog.__table__)


class PeriodicJob(Model):
    """J9: a timetable. `next_at` is the slot that fires next; it moves in the transaction that enqueues the job."""

    __tablename__ = "periodic_job"
    __table_args__ = (sa.CheckConstraint("(cron is null) <> (every is null)", name="cron_or_every"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    task: Mapped[str]
    args: Mapped[Any] = mapped_column(Stored)
    kwargs: Mapped[Any] = mapped_column(Stored)
    queue: Mapped[str]
    rank: Mapped[int] = mapped_column(sa.SmallInteger)
    max_attempts: Mapped[int] = mapped_column(sa.SmallInteger)
    cron: Mapped[str | None]
    every: Mapped[timedelta | None] = mapped_column(sa.Interval)
    tz: Mapped[str]
    catch_up: Mapped[str]
    paused: Mapped[bool] = mapped_column(server_default=sa.false())
    next_at: Mapped[datetime] = mapped_column(index=True)
    fired_at: Mapped[datetime | None]


class KnownTask(Model):
    """Tasks that some worker has registered: what a producer in another language may name (J10)."""

    __tablename__ = "known_task"

    name: Mapped[str] = mapped_column(primary_key=True)
    queue: Mapped[str]
    max_attempts: Mapped[int] = mapped_column(sa.SmallInteger)
    seen_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
