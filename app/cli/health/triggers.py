"""Checks of reactive tasks: is one quarantined, and can what their triggers say come true (T8, T10)."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.cli.health.finding import Finding, fail, ok, warn
from triggers.checks import Finding as Found
from triggers.checks import FindingKind
from triggers.model import ReactiveTask
from triggers.static import findings

SHOWN = 10
LINE = 300


def tasks(session: Session) -> Finding:
    declared = ReactiveTask.removed_at.is_(None)
    counted = sa.select(sa.func.count(), sa.func.count(ReactiveTask.quarantined_at)).where(declared)
    count, quarantined = session.execute(counted).one()
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
        "see 'tidemill reactive list --state quarantined'; mend the cause, then 'tidemill reactive release TASK'",
    )


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
