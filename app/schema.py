"""All tables of Tidemill together: importing this makes their metadata complete."""

from __future__ import annotations

from app.audit import Audit
from app.claims.storm import RepairPace
from app.counters import Counter
from app.db import Model
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
