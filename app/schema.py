"""All tables of Tidemill together: importing this makes their metadata complete."""

from __future__ import annotations

from app.db import Model
from app.jobs.model import Job, JobLog, KnownTask, PeriodicJob
from app.limits import Queue
from app.workers import Worker

TABLES = (Job, JobLog, KnownTask, PeriodicJob, Queue, Worker)
metadata = Model.metadata
