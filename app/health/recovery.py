"""Checks of recovery: what it had to put right, and operations that stand still."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy.orm import Session

from app.glance import REPAIRS_OF
from app.health.finding import Finding, ok, warn
from app.health.work import SERVICES
from app.words import counted, several, span
from processes.wording import clean
from recovery import operations, record
from recovery.operations import OperationState, Progress

SHOWN, LIVE_MOST = 5, 1000
#: A batch may take so long, and then others that are due wait for it.
IDLE = timedelta(minutes=1)
#: What comes of workers that die and actors that are slow; anything else was damaged.
USUAL = (record.LOST, record.WORK_TIMEOUT)


def repairs(session: Session) -> Finding:
    """R7: of the last hour, without those that an operator asked for."""
    found = record.recent(session, REPAIRS_OF, by_itself=True)
    if not found:
        return ok("repairs", f"none in the last {span(REPAIRS_OF)}")
    damaged = {name: times for name, times in found.items() if name not in USUAL}
    if not damaged:
        return ok("repairs", f"in the last {span(REPAIRS_OF)} only what lost its worker: {_words(found)}")
    return warn(
        "repairs",
        f"rows that disagreed were put right in the last {span(REPAIRS_OF)}: {_words(damaged)}",
        "tidemill recover repairs says which; look for what writes to these tables, and whether Postgres was restored",
    )


def _words(times: dict[str, int]) -> str:
    return ", ".join(f"{name} {counted(count)}" for name, count in times.items())


def ongoing(session: Session) -> list[Finding]:
    """R9: what paused itself waits for an operator, and what runs for the services."""
    live = operations.overview(LIVE_MOST, live=True, session=session)
    found = [_stopped(each) for each in live if each.why is not None][:SHOWN]
    if (late := operations.late(session)) is not None and late > IDLE:
        found.append(warn("operations", f"one is due since {span(late)}, and nobody works on it", SERVICES))
    paused = sum(each.state is OperationState.PAUSED for each in live)
    words = f"{several(len(live) - paused, 'operation')} in work, {paused} paused" if live else "none in work"
    return found or [ok("operations", words)]


def _stopped(found: Progress) -> Finding:
    where = f"operation {found.id} ({found.kind}) paused itself at {found.ended} of {found.total}"
    return warn(
        "operations",
        f"{where}: {clean(found.why or '')}",
        f"tidemill recover operation show {found.id} says what failed; mend it, then resume or cancel the operation",
    )
