"""All tables of Tidemill together: importing this makes their metadata complete."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import Audit
from app.claims.storm import RepairPace
from app.counters import Counter
from app.db import SCHEMA, Model
from app.errors import NotMigrated
from app.jobs.model import Job, JobLog, KnownTask, PeriodicJob
from app.limits import Queue
from app.outbox.model import Event, EventRelay, EventSeen, EventSubscription
from app.shares import Scheduler
from app.timings import Timing
from app.tokens.model import Token
from app.tokens.sessions import ConsoleSession
from app.workers import Worker
from processes.model import (
    ActorPreferences,
    Answer,
    BrokenTask,
    Decision,
    Edge,
    Graph,
    Process,
    SearchTemplate,
    Task,
)
from processes.polls import QueuePoll
from recovery.known import KnownError
from recovery.model import Repair
from recovery.operations.model import Operation, OperationItem
from stages.model import EntityGuard, EntityKind, Resweep, ResweepPart, Sharding, Stage, StageState, StageVisit
from triggers.model import (
    Ctl,
    CtlChange,
    CtlSeen,
    Evaluation,
    MissedWindow,
    ReactiveCursor,
    ReactiveEvent,
    ReactiveHold,
    ReactiveLeaf,
    ReactivePool,
    ReactiveTask,
    TaskRun,
)

TABLES = (
    *(Audit, Job, JobLog, KnownTask, PeriodicJob, Queue, Scheduler, Worker),
    *(Ctl, CtlChange, CtlSeen, Evaluation, ReactiveLeaf, ReactivePool, ReactiveTask, TaskRun),
    *(MissedWindow, ReactiveCursor, ReactiveEvent, ReactiveHold),
    *(Event, EventRelay, EventSeen, EventSubscription, Token),
    *(ActorPreferences, Answer, BrokenTask, Decision, Edge, Graph, Process, Task),
    *(KnownError, SearchTemplate),
    *(Counter, QueuePoll, Repair, RepairPace, Timing),
    *(EntityGuard, EntityKind, Resweep, ResweepPart, Sharding, Stage, StageState, StageVisit),
    *(Operation, OperationItem),
    ConsoleSession,
)
#: What is taken, kept and lost by claims.
CLAIMABLE = (Job, TaskRun, StageVisit, ResweepPart, Decision)
metadata = Model.metadata
#: That of the last migration. They are numbered, and text of one length is in the order of its numbers.
REVISION = "0017"
_VERSION = sa.table("alembic_version", sa.column("version_num", sa.Text), schema=SCHEMA)


def refuse_older(session: Session) -> None:
    """Before anything is taken: work on a schema that has not all of this release would fail, or be done by halves. A
    later one has all of it."""
    found = session.execute(sa.select(_VERSION.c.version_num)).scalar()
    if found is None or found < REVISION:
        raise NotMigrated(
            f"the schema '{SCHEMA}' is at revision {found or 'none'}, and this release needs {REVISION}: "
            f"run 'tidemill migrate'"
        )
