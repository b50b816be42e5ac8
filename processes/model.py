"""The tables of processes.

A process is a graph of tasks. `process` is what its caller registered, `graph` how much of it is still to do, `task`
what each step was told and came to, `edge` who waits for whom, `decision` the claimable row by which a task is handed
to its actor. They change together, in the transaction that accepts a decision, under the lock of the graph's row.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from typing import Any, ClassVar, NewType, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, ENUM, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.claims import Claimable, Lane, claim_indexes
from app.db import SCHEMA, Model
from processes.fingerprint import BROKEN_WORDS, PROCESS_WORDS, fingerprint_sql
from processes.states import DecisionState, ProcessState, TaskState

ProcessId = NewType("ProcessId", int)
#: Within its process, from 1, which is the task that the process began with.
TaskNumber = NewType("TaskNumber", int)
Key = tuple[int, int]

ROOT = TaskNumber(1)
PREFIX = "actor"

_OFTEN_UPDATED = {
    "fillfactor": 70,
    "autovacuum_vacuum_scale_factor": 0.0,
    "autovacuum_vacuum_threshold": 20000,
}


def queue_of(actor: str) -> str:
    return f"{PREFIX}.{actor}"


def _enum(kind: type[enum.StrEnum], name: str) -> ENUM:
    return ENUM(kind, name=name, schema=SCHEMA, values_callable=lambda states: [each.value for each in states])


class Process(Model):
    __tablename__ = "process"
    __table_args__ = (
        sa.Index(
            "process_idempotency",
            "idempotency_key",
            "name",
            unique=True,
            postgresql_where=sa.text("idempotency_key IS NOT NULL"),
        ),
        sa.Index(
            "process_registered",
            "name",
            sa.text("priority DESC"),
            "id",
            postgresql_where=sa.text("state = 'REGISTERED'"),
        ),
        sa.Index("process_recovery", "recovery_time", postgresql_where=sa.text("recovery_time IS NOT NULL")),
        # By its bytes: the beginning of one is found, in whatever language the database sorts.
        sa.Index(
            "process_custom_id",
            "custom_id",
            postgresql_ops={"custom_id": "text_pattern_ops"},
            postgresql_where=sa.text("custom_id IS NOT NULL"),
        ),
        sa.Index("process_state", "state", "name", "id"),
        sa.Index("process_ended", "name", "ended_at", postgresql_where=sa.text("ended_at IS NOT NULL")),
        sa.Index("process_registered_at", "registered_at", "id"),
        sa.Index("process_copied_from", "copied_from", postgresql_where=sa.text("copied_from IS NOT NULL")),
        sa.Index("process_begun", "begun_at", postgresql_where=sa.text("begun_at IS NOT NULL")),
        sa.Index(
            "process_attributes",
            "attributes",
            postgresql_using="gin",
            postgresql_ops={"attributes": "jsonb_path_ops"},
            postgresql_where=sa.text("attributes <> '{}'"),
        ),
        sa.Index(
            "process_words",
            sa.text(PROCESS_WORDS),
            postgresql_using="gin",
            postgresql_where=sa.text("error IS NOT NULL"),
        ),
        sa.CheckConstraint(
            "(ended_at IS NOT NULL) = (state IN ('FINISHED', 'ABORTED'))", name="ended_as_its_state_says"
        ),
        {"postgresql_with": {"fillfactor": 85}},
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    #: Of the decider that it begins with: the type of the process.
    name: Mapped[str]
    state: Mapped[ProcessState] = mapped_column(
        _enum(ProcessState, "process_state"), server_default=sa.text("'REGISTERED'")
    )
    priority: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    custom_id: Mapped[str | None]
    idempotency_key: Mapped[str | None]
    attributes: Mapped[Any] = mapped_column(JSONB(none_as_null=True), server_default=sa.text("'{}'"))
    #: `{"args": [...], "kwargs": {...}}` of the first task.
    arguments: Mapped[Any] = mapped_column(sa.JSON(none_as_null=True))
    value: Mapped[Any | None] = mapped_column(sa.JSON(none_as_null=True))
    error: Mapped[str | None]
    #: Of whoever registered it (`app.tracing`).
    trace: Mapped[str | None]
    #: Which process it was a copy of when it was made; that one may be forgotten by now.
    copied_from: Mapped[int | None] = mapped_column(sa.BigInteger)
    registered_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    begun_at: Mapped[datetime | None]
    #: When it finished or was aborted.
    ended_at: Mapped[datetime | None]
    #: When its `process_timeout` is over.
    deadline_at: Mapped[datetime | None]
    #: When recovery has to look at it: soon after it was registered, then at its deadline. Null when it has ended.
    recovery_time: Mapped[datetime | None]


class Graph(Model):
    """Whoever changes a task of the process locks this row first."""

    __tablename__ = "graph"
    __table_args__ = (
        sa.Index("graph_recovery", "recovery_time", postgresql_where=sa.text("recovery_time IS NOT NULL")),
        sa.CheckConstraint("0 <= broken AND broken <= unfinished AND unfinished <= tasks", name="counts_its_tasks"),
        {"postgresql_with": _OFTEN_UPDATED},
    )

    process_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    #: The highest number of a task.
    tasks: Mapped[int] = mapped_column(server_default=sa.text("1"))
    #: How many have not finished; broken ones among them.
    unfinished: Mapped[int] = mapped_column(server_default=sa.text("1"))
    broken: Mapped[int] = mapped_column(server_default=sa.text("0"))
    changed_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    #: When recovery has to look at a graph that nothing changed since. Null when the process has ended.
    recovery_time: Mapped[datetime | None]


class Task(Model):
    __tablename__ = "task"
    __table_args__ = (
        # It waits for something exactly while it is pending; what was aborted may stand as it stood.
        sa.CheckConstraint("pending >= 0 AND (pending > 0 OR state <> 'PENDING')", name="pending_waits"),
        sa.CheckConstraint("pending = 0 OR state IN ('PENDING', 'ABORTED')", name="ready_waits_for_nothing"),
        {"postgresql_with": _OFTEN_UPDATED},
    )

    process_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    actor: Mapped[str]
    state: Mapped[TaskState] = mapped_column(_enum(TaskState, "task_state"))
    #: How many tasks it still waits for: the edges to it whose source has not finished.
    pending: Mapped[int] = mapped_column(server_default=sa.text("0"))
    #: `{"args": [...], "kwargs": {...}}`; `processes.arguments` says how promises are written there.
    arguments: Mapped[Any] = mapped_column(sa.JSON(none_as_null=True))
    #: The tasks whose values are to be filled in.
    uses: Mapped[list[int] | None] = mapped_column(ARRAY(sa.Integer))
    #: The decider that asked for it; null of the first.
    created_by: Mapped[int | None]
    #: How the decider wants it to be called: `retry`, `fail_types`; null: as the actor says.
    policy: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))
    #: Not handed out before: a moment, and a span after it became ready.
    not_before: Mapped[datetime | None]
    delay: Mapped[timedelta | None]
    #: Whose value is that of this task: of one that `FOLLOWS`, the task that it waits for; of one that has `FINISHED`,
    #: the task that holds the value. Null: its own.
    value_of: Mapped[int | None]
    #: Of one that finished with a value of its own; with an accepted failure, `{"type": …, "message": …}`.
    result: Mapped[Any | None] = mapped_column(sa.JSON(none_as_null=True))
    failed: Mapped[bool] = mapped_column(server_default=sa.false())
    created_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    #: When what it waited for had finished.
    ready_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class Edge(Model):
    """`target` waits for `source`."""

    __tablename__ = "edge"

    process_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    source: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    target: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    #: The target has decided already, and its value is that of the source. It may have waited for that before, too.
    value: Mapped[bool] = mapped_column(primary_key=True, server_default=sa.false())


class Decision(Claimable, Model):
    """What an actor is to decide about a task that is ready, and whose it is meanwhile."""

    __tablename__ = "decision"
    __table_args__ = (
        sa.Index(
            "decision_deadline",
            "recovery_time",
            postgresql_where=sa.text("state = 'QUEUED' AND recovery_time IS NOT NULL"),
        ),
        sa.CheckConstraint("(pass_key IS NOT NULL) = (state = 'WORK')", name="held_exactly_in_work"),
        {"postgresql_with": _OFTEN_UPDATED},
    )

    NOUN: ClassVar[str] = "task"
    WAITING: ClassVar[str] = "QUEUED"
    RUNNING: ClassVar[str] = "WORK"
    #: Nothing that is to be decided lies aside: what cannot be is a broken task.
    PARKED: ClassVar[str] = ""

    process_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    state: Mapped[DecisionState] = mapped_column(
        _enum(DecisionState, "decision_state"), server_default=sa.text("'QUEUED'")
    )
    #: How often an operator has restarted the task: answers to what was handed out before do not count.
    epoch: Mapped[int] = mapped_column(server_default=sa.text("0"))
    #: How often it failed, and how often its answer did not come in time, since the operator restarted it.
    failures: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    restarts: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    #: When the `task_timeout` is over; while it waits, its `recovery_time`.
    deadline_at: Mapped[datetime | None]
    #: The same, where it ends the task even while an actor works on it.
    force_at: Mapped[datetime | None]
    queued_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    ended_at: Mapped[datetime | None]
    #: What went wrong the last time.
    error: Mapped[str | None]

    @classmethod
    def released(cls) -> dict[str, Any]:
        return {"recovery_time": cls.deadline_at}

    @classmethod
    def held_until(cls, lease: Any) -> Any:
        # The least of those that are not null.
        return sa.func.least(super().held_until(lease), cls.force_at)


class BrokenTask(Model):
    """The unit of breakage: what an operator has to look at."""

    __tablename__ = "broken_task"
    __table_args__ = (
        sa.Index("broken_task_actor", "actor", "at"),
        sa.Index("broken_task_at", "at"),
        sa.Index("broken_task_type", "type", "at"),
        sa.Index("broken_task_fingerprint", "fingerprint", "at"),
        sa.Index("broken_task_words", sa.text(BROKEN_WORDS), postgresql_using="gin"),
    )

    process_id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    actor: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    #: The class of the error.
    type: Mapped[str]
    message: Mapped[str]
    traceback: Mapped[str | None]
    #: The same of failures of an actor that differ in ids, numbers and quoted text only, or in the refused row.
    fingerprint: Mapped[str] = mapped_column(sa.Computed(fingerprint_sql(), persisted=True))


class Answer(Model):
    """What came from an actor and was not simply taken: an attempt that failed, an answer that came late or twice."""

    __tablename__ = "answer"
    __table_args__ = (sa.Index("answer_task", "process_id", "number", "id"),)

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    process_id: Mapped[int] = mapped_column(sa.BigInteger)
    number: Mapped[int]
    at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    worker: Mapped[str | None]
    #: Why it was not taken; null: an attempt that failed, and was counted.
    refused: Mapped[str | None]
    #: Class and message of the error; null of a result.
    error: Mapped[str | None]
    traceback: Mapped[str | None]


class ActorPreferences(Model):
    """How an actor, or a type of processes, is dealt with (P6, P7): what the code says, until an operator says
    otherwise."""

    __tablename__ = "actor_preferences"

    name: Mapped[str] = mapped_column(primary_key=True)
    #: A coordinator: the first task of a process of this name.
    decider: Mapped[bool]
    #: Nobody here does its work: it is polled for (P10).
    outside: Mapped[bool]
    module: Mapped[str]
    #: The Celery task.
    task: Mapped[str]
    accept_first: Mapped[bool]
    work_timeout: Mapped[timedelta]
    restart_after_work_timeout: Mapped[bool]
    max_restarts: Mapped[int] = mapped_column(sa.SmallInteger)
    task_timeout: Mapped[timedelta | None]
    force_finish_after_task_timeout: Mapped[bool]
    #: `{"max_attempts": …, "delay": …, "factor": …, "most": …}`
    retry: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    fail_types: Mapped[list[str]] = mapped_column(ARRAY(sa.Text))
    #: False: whoever restarts a process has to agree to its being called again.
    repeatable: Mapped[bool] = mapped_column(server_default=sa.true())
    process_timeout: Mapped[timedelta | None]
    idle_process_timeout: Mapped[timedelta]
    #: How long a process of this type is kept after its end.
    retention: Mapped[timedelta]
    when_inconsistent: Mapped[str]
    #: What the code says; applied when that changes, so that what an operator set lasts.
    declared: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    #: Answers that did not come in time.
    work_timeouts: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    removed_at: Mapped[datetime | None]


class SearchTemplate(Model):
    """A search that somebody saved under a name."""

    __tablename__ = "search_template"

    name: Mapped[str] = mapped_column(primary_key=True)
    #: As they were written, so that a span counts back from whenever it is used: `processes.filters`.
    filters: Mapped[Any] = mapped_column(JSONB(none_as_null=True))
    created_by: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=sa.func.now())


PROCESS = cast(sa.Table, Process.__table__)
GRAPH = cast(sa.Table, Graph.__table__)
TASK = cast(sa.Table, Task.__table__)
EDGE = cast(sa.Table, Edge.__table__)
DECISION = cast(sa.Table, Decision.__table__)
BROKEN_TASK = cast(sa.Table, BrokenTask.__table__)
ANSWER = cast(sa.Table, Answer.__table__)
PREFERENCES = cast(sa.Table, ActorPreferences.__table__)
TEMPLATE = cast(sa.Table, SearchTemplate.__table__)
claim_indexes(Decision, Lane.MAIN)
