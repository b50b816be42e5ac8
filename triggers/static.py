"""The static checks over the tasks as they are registered, and the parameters that have a value."""

from __future__ import annotations

from collections.abc import Set

import sqlalchemy as sa
from sqlalchemy.orm import Session

from triggers.checks import Finding, TaskFacts, check
from triggers.model import Ctl, ReactiveLeaf, ReactiveTask
from triggers.trigger import from_json


def findings(session: Session, tasks: Set[str] | None = None) -> tuple[Finding, ...]:
    """All, or those that concern one of these tasks."""
    if tasks is not None and not tasks:
        return ()
    t = ReactiveTask
    rows = session.execute(
        sa.select(t.name, t.trigger, t.produces, t.min_interval).where(t.removed_at.is_(None)).order_by(t.name)
    )
    facts = [
        TaskFacts(row.name, from_json(row.trigger), frozenset((a, b) for a, b in row.produces), row.min_interval)
        for row in rows
    ]
    named = sa.or_(
        sa.and_(ReactiveLeaf.entity == Ctl.entity, ReactiveLeaf.parameter == Ctl.parameter),
        sa.and_(ReactiveLeaf.ref_entity == Ctl.entity, ReactiveLeaf.ref_parameter == Ctl.parameter),
    )
    valued = {(a, b) for a, b in session.execute(sa.select(Ctl.entity, Ctl.parameter).where(sa.exists().where(named)))}
    found = check(facts, valued)
    return tuple(each for each in found if tasks is None or not tasks.isdisjoint(each.tasks))
