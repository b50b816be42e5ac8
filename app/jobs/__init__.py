"""Durable jobs: plain Celery tasks that must not get lost.

Promises (rules J1–J10):

- A producer enqueues inside its own transaction: both commit, or neither does.
- A job is taken by one worker at a time, in a transaction of its own; the oldest first within a priority.
- At least once: no crash loses a job. One claim is valid at any time; work under a lost claim cannot save.
- When it ends, the job leaves the queue and its execution goes to the log, from which it can be put in again.
"""

from __future__ import annotations

from app.jobs.current import ThisJob, this_job
from app.jobs.enqueue import enqueue, enqueue_many
from app.jobs.manage import Ended, cancel, prioritize, rerun, retry, snooze, wait
from app.jobs.model import JobId, JobState, Outcome
from app.jobs.schedules import periodic

__all__ = [
    "Ended",
    "JobId",
    "JobState",
    "Outcome",
    "ThisJob",
    "cancel",
    "enqueue",
    "enqueue_many",
    "periodic",
    "prioritize",
    "rerun",
    "retry",
    "snooze",
    "this_job",
    "wait",
]
