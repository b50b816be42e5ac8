"""The tables of reactive work: the control table, what tasks have seen of it, the tasks, their runs and evaluations.

Lock order is law: the row of the task, then its run, then parameters (in key order), then what was seen.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from typing import Any, NewType, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ENUM, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.claims import Claimable, Lane, claim_indexes
from app.db import SCHEMA, Model
from app.stream import Snapshot, TransactionId

RunId = NewType("RunId", int)


class RunState(enum.StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  # too often in a row: the task is quarantined; or a manual run, once
    CANCELLED = "cancelled"
    LAPSED = "lapsed"  # when a worker took it, its trigger did not hold any more


class RunKind(enum.StrEnum):
    REGULAR = "regular"  # started by its trigger
    MANUAL = "manual"  # started by a person


def _enum(words: type[enum.StrEnum], name: str) -> ENUM:
    return ENUM(words, name=name, schema=SCHEMA, values_callable=lambda found: [word.value for word in found])


class Ctl(Model):
    """How far each data set has got (T1). `version` moves with every change, `epoch` when a value was restated."""

    __tablename__ = "ctl"
    __table_args__ = (
        # What Python's datetime can hold, and no infinity.
        sa.CheckConstraint("value between '0002-01-01Z' and '9998-12-31Z'", name="value_within_years"),
        {"postgresql_with": {"fillfactor": 70}},
    )

    entity: Mapped[str] = mapped_column(primary_key=True)
    parameter: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[datetime]
    version: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("1"))
    epoch: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    changed_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())


class CtlChange(Model):
    """Every change of `ctl`, written by a trigger of the table: whoever changes it, also by plain SQL, is recorded."""

    __tablename__ = "ctl_change"
    __table_args__ = (
        sa.Index("ctl_change_parameter", "entity", "parameter", "id"),
        # Whoever follows the changes asks by transaction.
        sa.Index("ctl_change_xid", "xid"),
        sa.Index("ctl_change_changed_at", "changed_at", postgresql_using="brin"),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    entity: Mapped[str]
    parameter: Mapped[str]
    value: Mapped[datetime]
    previous: Mapped[datetime | None]
    restated: Mapped[bool] = mapped_column(server_default=sa.false())
    changed_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    xid: Mapped[str] = mapped_column(TransactionId, server_default=sa.text("pg_current_xact_id()"))


class ReactiveEvent(Model):
    """A task that has to be read again: registered, changed, its run ended, what it has seen changed. Written by a
    trigger of `reactive_task`, beside `ctl_change` the second stream that the service follows."""

    __tablename__ = "reactive_event"
    __table_args__ = (
        sa.Index("reactive_event_xid", "xid"),
        sa.Index("reactive_event_at", "at", postgresql_using="brin"),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    task: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    xid: Mapped[str] = mapped_column(TransactionId, server_default=sa.text("pg_current_xact_id()"))


class ReactiveCursor(Model):
    """How far the service has followed the two streams: new is what was not visible in `snapshot` and is now."""

    __tablename__ = "reactive_cursor"
    __table_args__ = (sa.CheckConstraint("id = 1", name="only_one"),)

    id: Mapped[int] = mapped_column(sa.SmallInteger, primary_key=True, autoincrement=False)
    snapshot: Mapped[str] = mapped_column(Snapshot)
    #: Of the cluster whose transactions these are: after a dump was restored elsewhere, they mean nothing.
    cluster: Mapped[int] = mapped_column(sa.BigInteger)
    #: Moves when a service takes over: one that was frozen meanwhile finds that it is not its turn any more.
    term: Mapped[int] = mapped_column(sa.BigInteger)
    moved_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    #: In this term: when memory was last compared with an evaluation of everything, and in how many tasks they ever
    #: differed.
    compared_at: Mapped[datetime | None]
    differences: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))


class ReactiveHold(Model):
    """T21: a slot of a pool is kept for a task, because a run that waits or works will deliver what it waits for."""

    __tablename__ = "reactive_hold"

    task: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    producer: Mapped[str]
    pool: Mapped[str]
    priority: Mapped[int] = mapped_column(sa.SmallInteger)
    since: Mapped[datetime]
    until: Mapped[datetime]


class MissedWindow(Model):
    """T23: a trigger held, and did not any more before the task could use it."""

    __tablename__ = "missed_window"
    __table_args__ = (sa.Index("missed_window_task", "task", "id"), sa.Index("missed_window_closed_at", "closed_at"))

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    task: Mapped[str]
    #: As far as it was watched.
    opened_at: Mapped[datetime]
    closed_at: Mapped[datetime]
    #: What stood in the way.
    reason: Mapped[str]
    run_id: Mapped[int | None] = mapped_column(sa.BigInteger)


class CtlSeen(Model):
    """What a task saw at its last regular run, by name and never by place in a trigger (T13)."""

    __tablename__ = "ctl_seen"

    task: Mapped[str] = mapped_column(primary_key=True)
    entity: Mapped[str] = mapped_column(primary_key=True)
    parameter: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[datetime]
    seen_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())


class ReactiveTask(Model):
    """A registered task, and what its evaluation needs."""

    __tablename__ = "reactive_task"
    __table_args__ = (
        sa.CheckConstraint("first_run in ('fire', 'baseline')", name="first_run_known"),
        sa.CheckConstraint("on_lapse in ('drop', 'run')", name="on_lapse_known"),
        {"postgresql_with": {"fillfactor": 70}},
    )

    name: Mapped[str] = mapped_column(primary_key=True)
    #: Short, and the order of an evaluation pass.
    id: Mapped[int] = mapped_column(sa.Integer, sa.Identity(always=False), unique=True)
    #: Whose registration tells that the task is gone.
    module: Mapped[str]
    pool: Mapped[str]
    priority: Mapped[int] = mapped_column(sa.SmallInteger)
    trigger: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    #: The trigger without its names: what many tasks share, parsed once.
    shape: Mapped[str]
    produces: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    min_interval: Mapped[timedelta | None] = mapped_column(sa.Interval)
    first_run: Mapped[str]
    on_lapse: Mapped[str]
    max_failures: Mapped[int] = mapped_column(sa.SmallInteger)
    backoff: Mapped[timedelta] = mapped_column(sa.Interval)
    #: Changes with the source of the function: a quarantined task is tried again after that.
    code: Mapped[str]
    #: Moves with the end of every run and whatever else an evaluation rests on: one that began before starts nothing.
    generation: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    #: Moves when a person changes what the task has seen: a run that was checked before does not write over it.
    seen_epoch: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    #: The outcome that was stored last.
    fired: Mapped[bool] = mapped_column(server_default=sa.false())
    #: In a row.
    failures: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    paused: Mapped[bool] = mapped_column(server_default=sa.false())
    #: `min_interval` after the start of the last regular run.
    start_after: Mapped[datetime | None]
    quarantined_at: Mapped[datetime | None]
    quarantine_reason: Mapped[str | None]
    #: The values for which it does not start again.
    quarantine_values: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))
    registered_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    changed_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    removed_at: Mapped[datetime | None]


TASK = cast(sa.Table, ReactiveTask.__table__)
# By what changes seldom: the end of a run is an update of no index.
sa.Index("reactive_task_pool", TASK.c.pool, TASK.c.name, postgresql_where=TASK.c.removed_at.is_(None))
#: Tasks that take for seen what is there at first: every pass asks for those that have not yet.
IS_BASELINE = sa.and_(TASK.c.first_run == sa.literal_column("'baseline'"), TASK.c.removed_at.is_(None))
sa.Index("reactive_task_baseline", TASK.c.id, postgresql_where=IS_BASELINE)
sa.Index("reactive_task_paused", TASK.c.name, postgresql_where=TASK.c.paused)
sa.Index("reactive_task_quarantined", TASK.c.name, postgresql_where=TASK.c.quarantined_at.is_not(None))
sa.Index("reactive_task_removed", TASK.c.name, postgresql_where=TASK.c.removed_at.is_not(None))
sa.Index("reactive_task_spaced", TASK.c.name, postgresql_where=TASK.c.min_interval.is_not(None))


class ReactiveLeaf(Model):
    """The conditions of a trigger in their order, as rows: an evaluation pass joins them with the values."""

    __tablename__ = "reactive_leaf"
    __table_args__ = (
        sa.Index("reactive_leaf_parameter", "entity", "parameter"),
        sa.Index("reactive_leaf_reference", "ref_entity", "ref_parameter"),
    )

    task_id: Mapped[int] = mapped_column(
        sa.ForeignKey(ReactiveTask.id, ondelete="cascade"), primary_key=True, autoincrement=False
    )
    position: Mapped[int] = mapped_column(sa.SmallInteger, primary_key=True)
    entity: Mapped[str]
    parameter: Mapped[str]
    ref_entity: Mapped[str | None]
    ref_parameter: Mapped[str | None]
    #: Rests on what the task has seen.
    latched: Mapped[bool]


class TaskRun(Claimable, Model):
    """A run of a reactive task, from the moment its trigger fired; it stays as its own record when it has ended."""

    NOUN = "run"

    __tablename__ = "run"
    __table_args__ = (
        sa.CheckConstraint(
            "(state = 'running') = (pass_key is not null) and (state = 'running') = (recovery_time is not null)",
            name="claimed_exactly_while_running",
        ),
        sa.CheckConstraint("(window_from is null) = (window_to is null)", name="window_has_two_ends"),
        {
            "postgresql_with": {
                "fillfactor": 70,
                "autovacuum_vacuum_scale_factor": 0.0,
                "autovacuum_vacuum_threshold": 20000,
            }
        },
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    state: Mapped[RunState] = mapped_column(_enum(RunState, "run_state"), server_default=sa.text("'waiting'"))
    task: Mapped[str]
    kind: Mapped[RunKind] = mapped_column(_enum(RunKind, "run_kind"), server_default=sa.text("'regular'"))
    #: As registered; `rank` begins as its negative and ages.
    priority: Mapped[int] = mapped_column(sa.SmallInteger)
    #: Whether what its check saw becomes the task's last seen.
    record: Mapped[bool] = mapped_column(server_default=sa.true())
    window_from: Mapped[datetime | None]
    window_to: Mapped[datetime | None]
    #: That of the task when it was made, and its `seen_epoch` when a worker checked the trigger.
    generation: Mapped[int] = mapped_column(sa.BigInteger)
    seen_epoch: Mapped[int | None] = mapped_column(sa.BigInteger)
    #: The values of the check that counts (T11): `[[entity, parameter, last seen, current], …]`.
    checked: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))
    #: What it has advanced.
    outputs: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))
    requested_by: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    error: Mapped[str | None]
    traceback: Mapped[str | None]


RUN = cast(sa.Table, TaskRun.__table__)
LIVE = TaskRun.state.in_([sa.literal_column("'waiting'"), sa.literal_column("'running'")])
# T16: not a lock that runs bump into.
sa.Index("run_one_live", TaskRun.task, unique=True, postgresql_where=LIVE)
sa.Index("run_task", TaskRun.task, TaskRun.id)
sa.Index("run_ended_at", TaskRun.ended_at, postgresql_where=TaskRun.ended_at.is_not(None))
claim_indexes(TaskRun, Lane.MAIN)


class Evaluation(Model):
    """What a check of a trigger came to, with all it rested on; stored when the outcome changes."""

    __tablename__ = "evaluation"
    __table_args__ = (sa.Index("evaluation_task", "task", "at"), sa.Index("evaluation_at", "at"))

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    task: Mapped[str]
    at: Mapped[datetime]
    fired: Mapped[bool]
    #: `polling`, or `claim`: the check that counts.
    cause: Mapped[str]
    run_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    trigger: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    #: `[[entity, parameter, last seen, current], …]`
    values: Mapped[Any] = mapped_column(JSONB(none_as_null=True))


class ReactivePool(Model):
    """What a pool has beside the limits of its queue `reactive.<name>`."""

    __tablename__ = "reactive_pool"

    name: Mapped[str] = mapped_column(primary_key=True)
    #: Waiting for so long counts as one more priority.
    ageing: Mapped[timedelta] = mapped_column(sa.Interval, server_default=sa.text("'1 minute'"))
    max_hold: Mapped[timedelta | None] = mapped_column(sa.Interval)
    #: What the code says; applied when that changes, so that what an operator set lasts.
    declared: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))
