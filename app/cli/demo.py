"""What `tidemill up --demo` adds: the example shop, a line of figures, and a worker that is killed while it works."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app.cli import figures
from app.cli.output import span
from app.cli.screen import Screen
from app.cli.services import worker_names
from app.cli.supervise import Spec, Stage, Supervisor
from app.db import transaction
from app.errors import DatabaseError
from app.jobs.model import Job, JobLog, JobState, Outcome
from app.settings import settings

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Recovery that can be watched: in production a lease is a minute.
DEFAULTS = {"TIDEMILL_MODULES": "shop.tasks", "TIDEMILL_LEASE": "5s", "TIDEMILL_SWEEP_INTERVAL": "2s"}
LINE_SECONDS, STRIKE_SECONDS = 2.0, 7.0
PRODUCER = "shop"


def prepare() -> list[Path]:
    """Before the settings are read; returns where the example's modules are."""
    if not (EXAMPLES / "shop").is_dir():
        raise click.ClickException("the examples are not installed: run 'make demo' in a checkout of Tidemill")
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    settings.cache_clear()
    sys.path.insert(0, str(EXAMPLES))
    return [EXAMPLES]


def producer() -> Spec:
    return Spec(PRODUCER, [sys.executable, "-m", "shop.produce"], Stage.PRODUCER)


@dataclass(frozen=True)
class Victim:
    job_id: int
    task: str
    at: float


class Demo:
    def __init__(self, supervisor: Supervisor, screen: Screen) -> None:
        self._supervisor, self._screen = supervisor, screen
        self._line_at = 0.0
        self._strike_at: float | None = None
        self._victim: Victim | None = None

    def look(self) -> None:
        now = time.monotonic()
        if self._strike_at is None:
            self._strike_at = now + STRIKE_SECONDS
        try:
            if now >= self._line_at:
                self._line_at = now + LINE_SECONDS
                self._show_figures()
            if self._victim is not None:
                self._look_for(self._victim, now)
            elif now >= self._strike_at:
                self._strike(now)
        except (DatabaseError, SQLAlchemyError) as error:
            self._screen.say(f"no figures: {error}")

    def _show_figures(self) -> None:
        with transaction() as session:
            queues = figures.queues(session)
            recent = figures.executions(session)
        waiting = sum(each.ready + each.later for each in queues)
        running, parked = sum(each.running for each in queues), sum(each.parked for each in queues)
        self._screen.say(
            f"jobs: {recent.done} done in the last {recent.minutes:g} min, {waiting} waiting, {running} running, "
            f"{parked} parked; {recent.retried} tries were repeated, {recent.lost} were lost and recovered"
        )

    def _strike(self, now: float) -> None:
        """Kills the first worker while it runs a job, as a crash or the kernel's out-of-memory killer would."""
        name = worker_names(1)[0]
        with transaction() as session:
            job = _longest_running(session, name)
        if job is None:
            return
        self._screen.say(f"now {name} is killed with -9, while it runs job {job.id} ({job.task})")
        self._supervisor.named(name).kill()
        self._victim = Victim(job.id, job.task, now)

    def _look_for(self, victim: Victim, now: float) -> None:
        with transaction() as session:
            entry = session.scalars(
                sa.select(JobLog).where(JobLog.job_id == victim.job_id, JobLog.outcome == Outcome.DONE)
            ).first()
        if entry is not None:
            self._screen.say(
                f"job {victim.job_id} ({victim.task}) lost its worker, was recovered and is done: try {entry.attempt}, "
                f"{now - victim.at:.0f} s after the kill (the lease here is {span(settings().lease)})"
            )
            self._victim, self._strike_at = None, float("inf")


def _longest_running(session: Session, worker: str) -> Job | None:
    query = sa.select(Job).where(Job.state == JobState.RUNNING, Job.claimed_by.startswith(worker))
    return session.scalars(query.order_by(Job.claimed_at.desc()).limit(1)).first()
