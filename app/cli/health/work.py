"""Checks of the work: does somebody take it, is anything stuck, is the data sound."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.claims.model import is_running
from app.cli import figures
from app.cli.figures import QueueFigures, WorkerFigures
from app.cli.health.finding import Finding, fail, ok, warn
from app.cli.output import span
from app.duties import NAMESPACE
from app.jobs.model import PeriodicJob
from app.schema import CLAIMABLE
from app.settings import settings
from recovery import invariants

#: What a service may be late without anything being wrong.
SLACK = timedelta(seconds=10)
SERVICES = "is a scheduler, or beat with a worker for the queue 'control', running?"


def taken(queues: list[QueueFigures], workers: list[WorkerFigures]) -> list[Finding]:
    alive = [each for each in workers if each.alive]
    lonely = [each for each in queues if each.stands_still]
    found = [
        fail(
            "workers",
            f"queue {each.name}: {each.ready} {each.holds} are ready and no live worker takes them",
            f"start one: celery -A app worker -Q {each.name}",
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
    locks = sa.table("pg_locks", *(sa.column(name) for name in ("locktype", "classid", "granted")))
    held = session.execute(
        sa.select(sa.func.count()).where(
            locks.c.locktype == "advisory", sa.cast(locks.c.classid, sa.BigInteger) == NAMESPACE, locks.c.granted
        )
    ).scalar_one()
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


def timetables(session: Session) -> Finding:
    late = sa.select(PeriodicJob.name).where(
        ~PeriodicJob.paused, PeriodicJob.next_at < sa.func.now() - SLACK - settings().poll_interval
    )
    names = list(session.scalars(late.order_by(PeriodicJob.next_at).limit(5)))
    if names:
        return fail("periodic jobs", f"late: {', '.join(names)}", SERVICES)
    return ok("periodic jobs", "none is late")


def sound(session: Session) -> list[Finding]:
    return [
        fail(
            "invariants",
            f"broken: {violation.invariant} (for example {', '.join(map(str, violation.examples))})",
            "this is a defect: please report it with the jobs' log",
        )
        for violation in invariants.check(session)
    ] or [ok("invariants", f"all {len(invariants.INVARIANTS)} hold")]


def figures_of(session: Session) -> tuple[list[QueueFigures], list[WorkerFigures]]:
    return figures.queues(session), figures.live_and_gone(session)
