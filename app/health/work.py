"""Checks of the work: does somebody take it, is anything stuck, is the data sound."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app import duties, figures
from app.calling import NOT_REGISTERED
from app.claims import depths
from app.claims.model import is_running
from app.figures import QueueFigures, WorkerFigures
from app.health.finding import Finding, fail, ok, warn
from app.jobs.model import Job, JobState, KnownTask, PeriodicJob
from app.limits import Queue
from app.near import shown
from app.schema import CLAIMABLE
from app.settings import settings
from app.words import COUNTED, counted, first_line, several, span
from recovery import invariants
from recovery.invariants.looking import QUERY_CANCELED
from stages.definition import PREFIX as STAGE
from stages.definition import SYSTEM

#: What a service may be late without anything being wrong.
SLACK = timedelta(seconds=10)
EXAMPLES = 5
SERVICES = "is a scheduler, or beat with a worker for the queue 'control', running?"


def _or_unwatch(queue: str) -> str:
    word, _, rest = queue.partition(".")
    kind, _, stage = rest.partition(".")
    if word != STAGE or stage != SYSTEM:
        return ""
    text = kind.replace("'", "''")
    return f"; or, if no stage looks after {kind} any more: select tidemill.unwatch('{text}')"


def taken(queues: list[QueueFigures], workers: list[WorkerFigures]) -> list[Finding]:
    alive = [each for each in workers if each.alive]
    lonely = [each for each in queues if each.stands_still]
    found = [
        fail(
            "workers",
            f"queue {each.name}: {each.ready} {each.holds} are ready and no live worker takes them",
            f"start one: celery -A app worker -Q {shlex.quote(each.name)}" + _or_unwatch(each.name),
        )
        for each in lonely
    ]
    if found:
        return found
    slots = sum(each.slots for each in alive)
    if not alive:
        return [warn("workers", "none is alive", "start one: celery -A app worker")]
    return [ok("workers", f"{len(alive)} alive with {slots} slots; no queue with work is without one")]


def services(session: Session) -> Finding:
    """Each leader holds the lock of its duty; beat's control tasks hold it for moments only."""
    held = len(duties.held(session))
    if held:
        return ok("scheduler", f"{held} duties have a leader")
    return warn(
        "scheduler",
        "no duty has a leader just now",
        "start one: celery -A app scheduler (with beat alone this is as it should be)",
    )


def leases(session: Session) -> Finding:
    """Overdue for so long that a sweep should have come by, even after the pause that follows a start of the server."""
    allowed = 2 * settings().sweep_interval + SLACK
    up = sa.func.now() - sa.func.pg_postmaster_start_time() > settings().lease + allowed
    for model in CLAIMABLE:
        age = sa.type_coerce(sa.func.now() - sa.func.min(model.recovery_time), sa.Interval)
        late = model.recovery_time < sa.func.now() - allowed
        count, oldest = session.execute(sa.select(sa.func.count(), age).where(is_running(model), late, up)).one()
        if count:
            what = f"{count} {model.__tablename__}s lost their worker"
            return fail("leases", f"{what}, the first {span(oldest)} ago, and none is put back", SERVICES)
    return ok("leases", "nothing waits to be recovered")


def resting(session: Session) -> Finding:
    """Queues that are paused by themselves, because what their work needs does not answer."""
    query = sa.select(Queue.name, Queue.rests_why).where(Queue.rests_why.is_not(None)).order_by(Queue.name)
    rows = session.execute(query).all()
    if not rows:
        return ok("services", "no queue rests because its service is away")
    return warn(
        "services",
        "; ".join(f"queue {row.name} rests: {row.rests_why}" for row in rows[:5]),
        "look after the service; it is tried again by itself, or at once: tidemill queue resume " + rows[0].name,
    )


def parked(session: Session) -> Finding:
    """J5."""
    counts: dict[str, int] = dict(session.execute(dict(depths.marked(Job, COUNTED))["parked"]).all())
    if not counts:
        return ok("parked jobs", "none")
    worst = max(counts, key=lambda queue: counts[queue])
    of_worst = sa.select(Job.id, Job.task, Job.error).where(
        Job.queue == worst, Job.state == sa.literal_column(f"'{JobState.PARKED}'")
    )
    last = session.execute(of_worst.order_by(Job.id.desc()).limit(1)).first()
    told = f"{counted(sum(counts.values()))} in {several(len(counts), 'queue')}, most in {worst}"
    if last is not None:
        told += f"; the latest is {last.id}, {last.task}: {first_line(last.error)}"
    return warn(
        "parked jobs",
        told,
        "see 'tidemill job list --state parked'; mend the cause, then 'tidemill job retry ID'",
    )


def unknown(session: Session) -> Finding:
    """Jobs of tasks that no service has ever registered, or that the worker which took them lacks."""
    some = sa.select(Job.task, Job.error).where(Job.state == JobState.WAITING).limit(COUNTED).subquery()
    registered = sa.exists().where(KnownTask.name == some.c.task)
    number = sa.func.count()
    of_tasks = (
        sa.select(some.c.task, number)
        .where(some.c.error.startswith(NOT_REGISTERED, autoescape=True) | ~registered)
        .group_by(some.c.task)
        .order_by(number.desc(), some.c.task)
    )
    found = session.execute(of_tasks).all()
    if not found:
        return ok("unknown tasks", "no job waits for a task that no worker knows")
    told = ", ".join(f"{shown(task)} ({count})" for task, count in found[:EXAMPLES])
    return warn(
        "unknown tasks",
        f"jobs wait for {several(len(found), 'task')} that no worker knows: {told}",
        "name the module in TIDEMILL_MODULES of the workers, under the name by which the producer imports it",
    )


def timetables(session: Session) -> Finding:
    late = sa.select(PeriodicJob.name).where(
        ~PeriodicJob.paused, PeriodicJob.next_at < sa.func.now() - SLACK - settings().poll_interval
    )
    names = list(session.scalars(late.order_by(PeriodicJob.next_at).limit(5)))
    if names:
        return fail("periodic jobs", f"late: {', '.join(names)}", SERVICES)
    return ok("periodic jobs", "none is late")


def sound(session: Session) -> list[Finding]:
    """Each within the time that a query of the doctor may take."""
    found, late = list[Finding](), list[str]()
    for each in invariants.ALL:
        if each.wrong:
            keys = _violated(session, each)
            if keys is None:
                late.append(each.name)
            elif keys:
                examples = ", ".join(each.subject(key) for key in keys)
                what = f"{each.verdict}: not '{each.name}' (for example {examples})"
                found.append(fail("invariants", what, "look closer, then repair: tidemill recover check --repair"))
    if late:
        told = f"{len(late)} could not be looked at in time, such as '{late[0]}'"
        found.append(warn("invariants", told, "give it more time: tidemill recover check --within 5min"))
    return found or [ok("invariants", f"all {sum(each.wrong for each in invariants.ALL)} hold")]


def _violated(session: Session, invariant: invariants.Invariant) -> list[tuple[Any, ...]] | None:
    try:
        return invariant.look(session, EXAMPLES)
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != QUERY_CANCELED:
            raise
        return None


def figures_of(session: Session) -> tuple[list[QueueFigures], list[WorkerFigures]]:
    return figures.queues(session), figures.live_and_gone(session)
