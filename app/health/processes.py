"""Checks of processes: what is broken, what should have been looked after, for whom nobody works."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.figures import NEVER_BEGUN
from app.health.finding import Finding, ok, warn
from app.health.work import SERVICES, SLACK
from app.settings import settings
from app.words import COUNTED, counted, several, span
from processes import listing
from processes.model import BROKEN_TASK, DECISION, PROCESS
from processes.states import DecisionState, ProcessState
from processes.wording import clean

SHOWN = 5


def broken(session: Session) -> Finding:
    """P9: each waits for an operator."""
    tasks = sa.select(BROKEN_TASK.c.process_id).limit(COUNTED).subquery()
    count = session.execute(sa.select(sa.func.count()).select_from(tasks)).scalar_one()
    late = sa.select(sa.literal(1)).where(PROCESS.c.state == ProcessState.BROKEN).limit(COUNTED).subquery()
    processes = session.execute(sa.select(sa.func.count()).select_from(late)).scalar_one()
    if not count and not processes:
        return ok("broken processes", "none")
    detail = f"{counted(processes)} broken, with {counted(count)} broken tasks"
    latest = session.execute(sa.select(*BROKEN_TASK.c).order_by(BROKEN_TASK.c.at.desc()).limit(1)).one_or_none()
    if latest is not None:
        what = clean(f"{latest.actor}: {latest.type}: {latest.message}")
        detail += f"; the latest: task {latest.number} of process {latest.process_id}, {what}"
    return warn(
        "broken processes",
        detail,
        "mend the cause, then: tidemill process search --state broken, tidemill process restart ID --from TASK",
    )


def overdue(session: Session) -> Finding:
    """R2, R5: what a sweep should have come by for, even after the pause that follows a start of the server. Answers
    that did not come in time are leases, and found apart."""
    now, allowed = sa.func.now(), 2 * settings().sweep_interval + SLACK
    up = _settled(settings().lease + allowed)
    waits = DECISION.c.state == sa.literal_column(f"'{DecisionState.QUEUED}'")
    registered = PROCESS.c.state == sa.literal_column(f"'{ProcessState.REGISTERED}'")
    checks: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
        ("tasks are past their task_timeout", DECISION.c.recovery_time, (waits,)),
        ("processes are past their process_timeout", PROCESS.c.recovery_time, (PROCESS.c.deadline_at < now - allowed,)),
        ("processes were registered and never begun", PROCESS.c.registered_at + NEVER_BEGUN, (registered,)),
    )
    for what, moment, conditions in checks:
        rows = sa.select(moment.label("at")).where(moment < now - allowed, up, *conditions).limit(COUNTED).subquery()
        age = sa.type_coerce(now - sa.func.min(rows.c.at), sa.Interval)
        count, oldest = session.execute(sa.select(sa.func.count(), age)).one()
        if count:
            return warn("process clocks", f"{counted(count)} {what}, the first since {span(oldest)}", SERVICES)
    return ok("process clocks", "nothing waits to be looked after")


def _settled(pause: timedelta) -> sa.ColumnElement[bool]:
    """The server has been up for longer than that."""
    return sa.func.now() - sa.func.pg_postmaster_start_time() > pause


def actors(session: Session) -> list[Finding]:
    """Whether somebody does what each is asked for; that no worker takes what is ready already is found apart."""
    found = listing.actors(session)
    findings = []
    for each in [each for each in found if each.unpolled][:SHOWN]:
        detail = f"{clean(each.name)} is done outside: {counted(each.ready)} of its tasks are ready, and nobody polls"
        waits = "" if each.oldest is None else f", the first for {span(each.oldest)}"
        findings.append(warn("actors", detail + waits, f"start what polls for {clean(each.name)}"))
    gone = [each for each in found if each.removed_at is not None]
    if gone:
        names = ", ".join(clean(each.name) for each in gone[:SHOWN])
        advice = "start a worker with the release that has them, or abort their processes: tidemill process search"
        findings.append(warn("actors", f"no code declares {names} any more, and tasks of them are left", advice))
    if blocked := [each for each in found if each.blocked and each.ready]:
        names = ", ".join(clean(each.name) for each in blocked[:SHOWN])
        advice = f"when the reason is gone: tidemill actor unblock {shlex.quote(clean(blocked[0].name))}"
        findings.append(warn("actors", f"blocked, with tasks that are ready: {names}", advice))
    return findings or [ok("actors", f"{several(len(found), 'actor')} and deciders, tasks wait for none in vain")]
