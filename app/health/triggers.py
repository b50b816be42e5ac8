"""Checks of reactive tasks: is one quarantined, are windows missed, does a service follow the changes, and can what the
triggers say come true (T8, T10)."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.health.finding import Finding, fail, ok, warn
from app.words import span
from triggers import missed
from triggers.checks import Finding as Found
from triggers.checks import FindingKind
from triggers.model import ReactiveCursor, ReactiveTask
from triggers.static import findings

SHOWN = 10
LINE = 300
DAY = timedelta(days=1)
#: A service moves its cursor several times a second; a frozen leader loses its duty after 10 s.
STANDS_STILL = timedelta(seconds=30)
#: It compares every minute.
COMPARES = timedelta(minutes=5)


def tasks(session: Session) -> Finding:
    declared = ReactiveTask.removed_at.is_(None)
    counted = sa.select(sa.func.count()).select_from(ReactiveTask).where(declared)
    # Each by an index of its own.
    count = session.execute(counted).scalar_one()
    quarantined = session.execute(counted.where(ReactiveTask.quarantined_at.is_not(None))).scalar_one()
    if not quarantined:
        return ok("reactive tasks", f"{count} declared, none is quarantined")
    worst = sa.select(ReactiveTask.name, ReactiveTask.quarantine_reason).where(
        declared, ReactiveTask.quarantined_at.is_not(None)
    )
    name, reason = session.execute(worst.order_by(ReactiveTask.quarantined_at.desc()).limit(1)).one()
    first = (reason or "").partition("\n")[0][:LINE]
    return warn(
        "reactive tasks",
        f"{quarantined} of {count} quarantined, the last: {name} ({first})",
        "see 'tidemill reactive list --state quarantined'; mend the cause, then 'tidemill reactive release TASK'; "
        "if its module is gone, 'tidemill reactive remove TASK'",
    )


def windows(session: Session) -> Finding:
    """T23: of the last day."""
    count = missed.count(session, DAY)
    if not count:
        return ok("missed windows", "none in the last day")
    [last] = missed.listed(session, limit=1)
    return warn(
        "missed windows",
        f"{count} in the last day, the last: {last.task} ({last.reason})",
        "see 'tidemill reactive list --missed'; a trigger that rests on last seen misses nothing",
    )


def service(session: Session) -> Finding:
    now, c = sa.func.clock_timestamp(), ReactiveCursor
    moved, compared = (sa.type_coerce(now - moment, sa.Interval) for moment in (c.moved_at, c.compared_at))
    query = sa.select(c.term, c.differences, moved.label("moved"), compared.label("compared"))
    row = session.execute(query).one_or_none()
    if row is None:
        return ok("reactive service", "none has ever followed the changes: tasks are found by polling")
    told = "it has never compared" if row.compared is None else f"it compared {span(row.compared)} ago"
    if row.differences:
        return fail(
            "reactive service",
            f"what it had in mind differed from an evaluation of everything in {row.differences} tasks; {told}",
            "it was put right, but this is a defect: please report it with the log of the scheduler",
        )
    if row.moved > STANDS_STILL:
        return warn(
            "reactive service",
            f"its cursor stands still since {span(row.moved)}: tasks are found by polling alone, and changes that "
            "it has not followed are never removed",
            "start one: celery -A app scheduler",
        )
    if row.compared is not None and row.compared > COMPARES:
        return warn(
            "reactive service",
            f"it follows the changes, but {told}",
            "see the log of the scheduler for what keeps it from comparing",
        )
    return ok("reactive service", f"it follows the changes, in term {row.term}; {told}, with no difference")


def sound(session: Session) -> list[Finding]:
    found = findings(session)
    told = [_told(each) for each in found[:SHOWN]]
    if len(found) > SHOWN:
        more = f"{len(found) - SHOWN} more of the kind"
        told.append(warn("triggers", more, "mend those above; the next call shows others"))
    return told or [ok("triggers", "all may fire, and none starts itself")]


def _told(found: Found) -> Finding:
    """Their sentences end with what to do."""
    detail, _, advice = found.sentence.rpartition("; " if found.kind is FindingKind.CYCLE else ": ")
    say = fail if found.kind is FindingKind.NEVER_FIRES else warn
    return say("triggers", f"{found.kind}: {detail}", advice)
