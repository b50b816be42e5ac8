"""What `tidemill up --demo` adds: the example shop, warehouse, classifieds site and fulfilment of orders, lines of
figures, and a worker that is killed while it works."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path

import click
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import figures
from app.cli.first_token import MAKE_ONE
from app.cli.output import span
from app.cli.screen import Screen
from app.cli.services import worker_names
from app.cli.supervise import Spec, Stage, Supervisor
from app.db import transaction
from app.embedded.server import free_port
from app.errors import DatabaseError
from app.figures import QueueFigures
from app.jobs.model import Job, JobLog, JobState, Outcome
from app.settings import settings
from processes import DecisionState, ProcessState
from processes import model as process_model
from stages import definition as stages
from stages import model as stage_model
from triggers.model import LIVE, ReactiveTask, RunState, TaskRun

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Recovery and triggers that can be watched: in production a lease is a minute.
DEFAULTS = {
    "TIDEMILL_MODULES": "shop.tasks,warehouse.tasks,classifieds.stages,orders.fulfil",
    "TIDEMILL_LEASE": "5s",
    "TIDEMILL_SWEEP_INTERVAL": "2s",
    "TIDEMILL_POLL_INTERVAL": "1s",
}
LINE_SECONDS, STRIKE_SECONDS, INVITE_SECONDS = 4.0, 7.0, 30.0
PRODUCER = "world"


def prepare() -> list[Path]:
    """Before the settings are read; returns where the example's modules are."""
    if not all((EXAMPLES / name).is_dir() for name in ("shop", "warehouse", "classifieds", "orders")):
        raise click.ClickException("the examples are not installed: run 'make demo' in a checkout of Tidemill")
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    # Where the classifieds site finds the service that fetches its photos; `world` serves it.
    os.environ.setdefault("CLASSIFIEDS_OUTSIDE", f"127.0.0.1:{free_port()}")
    settings.cache_clear()
    # The servers of others are nobody's to break.
    os.environ.setdefault("TIDEMILL_DEMO", "no" if settings().database_url or settings().broker_url else "yes")
    settings.cache_clear()
    sys.path.insert(0, str(EXAMPLES))
    return [EXAMPLES]


def create_tables() -> None:
    """Of the classifieds site: a service that starts looks whether the table of its stages is watched."""
    import_module("classifieds.models").create_tables()


def producer() -> Spec:
    return Spec(PRODUCER, [sys.executable, "-m", PRODUCER], Stage.PRODUCER)


@dataclass(frozen=True)
class Victim:
    job_id: int
    task: str
    claimed_at: datetime
    at: float


class Demo:
    def __init__(self, supervisor: Supervisor, screen: Screen, console: str) -> None:
        self._supervisor, self._screen, self._console = supervisor, screen, console
        self._line_at = self._invite_at = 0.0
        self._strike_at: float | None = None
        self._victim: Victim | None = None
        self._killed: int | None = None

    def invite(self) -> None:
        """To the page, again and again: what was said at the start is soon far above."""
        self._invite_at = time.monotonic() + INVITE_SECONDS
        if settings().demo:
            self._screen.say(
                f"break something and watch it heal: {self._console}/demo says what, and what you will see "
                f"(another token to sign in with: {MAKE_ONE})"
            )

    def look(self) -> None:
        now = time.monotonic()
        if self._strike_at is None:
            self._strike_at = now + STRIKE_SECONDS
        try:
            if now >= self._line_at:
                self._line_at = now + LINE_SECONDS
                self._show_figures()
            if now >= self._invite_at:
                self.invite()
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
            runs = _runs(session)
            known = sa.select(sa.func.count()).select_from(stage_model.Stage)
            declared = session.scalar(known.where(stage_model.Stage.removed_at.is_(None)))
            under_way = _processes(session)
        visits = [each for each in queues if each.name.startswith(f"{stages.PREFIX}.")]
        steps = [each for each in queues if each.name.startswith(f"{process_model.PREFIX}.")]
        ready, later, running, parked = _sums([each for each in queues if each not in visits and each not in steps])
        self._screen.say(
            f"jobs: {recent.done} done in the last {recent.minutes:g} min, {ready + later} waiting, {running} running, "
            f"{parked} parked; {recent.retried} tries were repeated, {recent.lost} were lost and recovered"
        )
        ready, later, running, parked = _sums(visits)
        self._screen.say(
            f"stages: {declared}; visits: {ready} due, {running} running, {later} at a later time, {parked} parked"
        )
        self._screen.say(under_way)
        self._screen.say(
            f"reactive tasks: {runs.tasks}; {runs.done} runs done, {runs.waiting} waiting, {runs.running} running, "
            f"{runs.backing_off} to be tried again, {runs.quarantined} tasks in quarantine"
            + (f"; the last done: {runs.last}" if runs.last else "")
        )

    def _strike(self, now: float) -> None:
        """Kills the first worker while it runs a job, as a crash or the kernel's out-of-memory killer would."""
        name = worker_names(1)[0]
        worker = self._supervisor.named(name)
        if worker.pid in (None, self._killed):  # what it holds is held by a dead one
            return
        with transaction() as session:
            job = _last_claimed(session, name)
        if job is None or job.claimed_at is None:
            return
        self._screen.say(f"now {name} is killed with -9, while it runs job {job.id} ({job.task})")
        self._killed = worker.pid
        worker.kill()
        self._victim = Victim(job.id, job.task, job.claimed_at, now)

    def _look_for(self, victim: Victim, now: float) -> None:
        """Its log says whether it was lost: it may have ended between the look at it and the kill."""
        with transaction() as session:
            log = session.scalars(_since(victim)).all()
        if not log:
            return
        if log[0].outcome is not Outcome.LOST:
            self._screen.say(f"job {victim.job_id} ({victim.task}) had ended before: nothing was lost, so once more")
            self._victim, self._strike_at = None, now
        elif (done := next((each for each in log if each.outcome is Outcome.DONE), None)) is not None:
            self._screen.say(
                f"job {victim.job_id} ({victim.task}) lost its worker, was recovered and is done: try {done.attempt}, "
                f"{now - victim.at:.0f} s after the kill (the lease here is {span(settings().lease)})"
            )
            self._victim, self._strike_at = None, float("inf")
        elif log[-1].outcome is Outcome.FAILED:
            self._screen.say(
                f"job {victim.job_id} ({victim.task}) lost its worker, was recovered and is parked, as it fails by "
                f"itself: so once more"
            )
            self._victim, self._strike_at = None, now


def _sums(queues: Sequence[QueueFigures]) -> tuple[int, int, int, int]:
    return (
        sum(each.ready for each in queues),
        sum(each.later for each in queues),
        sum(each.running for each in queues),
        sum(each.parked for each in queues),
    )


@dataclass(frozen=True)
class Runs:
    """`done`: of the last minutes. `backing_off`: of those that wait, the ones that have failed."""

    tasks: int
    quarantined: int
    done: int
    waiting: int
    running: int
    backing_off: int
    last: str | None


def _runs(session: Session) -> Runs:
    tasks = sa.select(sa.func.count(), sa.func.count(ReactiveTask.quarantined_at))
    found = session.execute(tasks.where(ReactiveTask.removed_at.is_(None))).one()
    live = {
        (state, failed): count
        for state, failed, count in session.execute(
            sa.select(TaskRun.state, TaskRun.error.is_not(None), sa.func.count()).where(LIVE).group_by(sa.text("1, 2"))
        )
    }
    done = sa.and_(TaskRun.state == RunState.DONE, TaskRun.ended_at > sa.func.now() - figures.RECENT)
    count = session.scalar(sa.select(sa.func.count()).where(done)) or 0
    last = session.scalar(sa.select(TaskRun.task).where(done).order_by(TaskRun.ended_at.desc()).limit(1))
    failed = live.get((RunState.WAITING, True), 0)
    running = live.get((RunState.RUNNING, False), 0) + live.get((RunState.RUNNING, True), 0)
    return Runs(*found, count, live.get((RunState.WAITING, False), 0) + failed, running, failed, last)


def _processes(session: Session) -> str:
    """A long demo has many that have ended: of these, only those of the last minutes are counted."""
    process, decision = process_model.Process, process_model.Decision
    live = sa.select(process.state, sa.func.count()).where(process.ended_at.is_(None)).group_by(process.state)
    under_way = dict(session.execute(live).all())
    ended = process.ended_at > sa.func.now() - figures.RECENT
    finished = session.scalar(sa.select(sa.func.count()).where(ended, process.state == ProcessState.FINISHED))
    open_ = sa.select(decision.state, sa.func.count()).where(decision.state != DecisionState.FINISH)
    tasks = dict(session.execute(open_.group_by(decision.state)).all())
    return (
        f"processes: {finished} finished in the last {figures.RECENT.seconds // 60} min, "
        f"{under_way.get(ProcessState.ACTIVE, 0) + under_way.get(ProcessState.REGISTERED, 0)} under way, "
        f"{under_way.get(ProcessState.BROKEN, 0)} broken; tasks: {tasks.get(DecisionState.WORK, 0)} in work, "
        f"{tasks.get(DecisionState.QUEUED, 0)} queued or to be done later"
    )


def _since(victim: Victim) -> sa.Select[JobLog]:
    """What became of it since the claim under which its worker was killed."""
    known = sa.select(JobLog).where(JobLog.job_id == victim.job_id, JobLog.ended_at >= victim.claimed_at)
    return known.order_by(JobLog.id)


def _last_claimed(session: Session, worker: str) -> Job | None:
    query = sa.select(Job).where(Job.state == JobState.RUNNING, Job.claimed_by.startswith(worker))
    return session.scalars(query.order_by(Job.claimed_at.desc()).limit(1)).first()
