"""All tables of Tidemill together: importing this makes their metadata complete."""

from __future__ import annotations

from app.audit import Audit
from app.db import Model
from app.jobs.model import Job, JobLog, KnownTask, PeriodicJob
from app.limits import Queue
from app.workers import Worker
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
    *(Audit, Job, JobLog, KnownTask, PeriodicJob, Queue, Worker),
    *(Ctl, CtlChange, CtlSeen, Evaluation, ReactiveLeaf, ReactivePool, ReactiveTask, TaskRun),
    *(MissedWindow, ReactiveCursor, ReactiveEvent, ReactiveHold),
)
#: What is taken, kept and lost by claims.
CLAIMABLE = (Job, TaskRun)
metadata = Model.metadata
