"""Redriving: what is parked is visited again at once, with all its attempts anew.

Promises:
- Only what was parked when it was looked at: what fails again and is parked again meanwhile stays so.
- What it was asked for while it was parked is not lost: it is visited now, and sees the entity as it is now. What only
  the low lane wanted stays in the low lane.
- A batch is a statement and a transaction; it reads by index where the last one ended, and waits for nobody: what
  somebody else is changing just now is left as it is, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.orm import Session

from app import audit
from app.arrays import Array
from app.db import transaction
from app.doorbell import GENERIC
from app.errors import BadRequest
from app.jobs.enqueue import ring_after_commit
from stages import parked
from stages.depths import PARKED
from stages.lookup import Known
from stages.model import NOT_AGAIN, VISIT, VisitState, joined_fields
from stages.parked import Selection

PAGE = 500
#: The audit keeps so many of the ids that were named.
IDS_TOLD = 100


@dataclass(frozen=True)
class Preview:
    """`until`: what is parked later is not part of it. `counts`: by queue, each up to `parked.GROUPED`."""

    until: datetime
    counts: dict[str, int]
    groups: list[parked.Group]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def more(self) -> bool:
        """There may be more than that."""
        return any(each >= parked.GROUPED for each in self.counts.values())


@dataclass(frozen=True)
class Redriven:
    #: `left`: they match, and somebody else is changing them just now.
    visits: int
    left: int


def preview(session: Session, selection: Selection, groups: int = 20) -> Preview:
    until: datetime = session.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return Preview(until, parked.count(session, selection), parked.groups(session, selection, groups))


def redrive(
    selection: Selection,
    until: datetime,
    *,
    expected: int | None = None,
    reason: str | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> Redriven:
    """Redrives what matches and was parked by then; `told` hears after each batch how many that were so far."""
    with transaction() as session:
        names = parked.queues(session, selection)
        _record(session, selection, until, expected, reason)
    done = left = 0
    for name in names:
        after: tuple[datetime | None, str | None] = (None, None)
        while True:
            with transaction() as session:
                page = session.execute(_batch(selection, after), _parameters(name, until, after)).one()
                if page.moved:
                    ring_after_commit(session, name, GENERIC)
            done, left = done + page.moved, left + page.matching - page.moved
            told(done)
            if page.rows < PAGE:
                break
            after = (page.failed_at, page.entity_id)
    return Redriven(done, left)


def redrive_named(stage: Known, ids: Sequence[str], *, reason: str | None = None) -> set[str]:
    """These entities; the ids of those that were parked."""
    if not ids:
        raise BadRequest("no id is named: which entities are to be visited again?")
    with transaction() as session:
        _record(session, Selection((stage,), tuple(ids)), None, len(ids), reason)
        return redrive_in(session, stage, ids)


def redrive_in(session: Session, stage: Known, ids: Sequence[str]) -> set[str]:
    """The same in a transaction of the caller, who records it."""
    given = sa.func.unnest(sa.bindparam("p_ids", type_=Array(sa.Text))).table_valued("id")
    mine = _locked(given.render_derived(name="given"), "id", stage.kind, stage.name, sa.true(), wait=True)
    ordered = {"p_ids": sorted(set(ids), key=str.encode)}
    found = set(session.execute(_waiting_again(mine).returning(VISIT.c.entity_id), ordered).scalars())
    if found:
        ring_after_commit(session, stage.queue, GENERIC)
    return found


def _record(
    session: Session, selection: Selection, until: datetime | None, expected: int | None, reason: str | None
) -> None:
    subject = "all" if selection.stages is None else ", ".join(str(each) for each in selection.stages)
    given = {"error": selection.error, "group": selection.group, "ids": list(selection.ids)[:IDS_TOLD] or None}
    named: dict[str, Any] = {word: value for word, value in given.items() if value is not None}
    named |= {"until": until and until.isoformat(), "expected": expected}
    audit.record(session, "stage.redrive", subject, reason=reason, **named)


def _parameters(queue: str, until: datetime, after: tuple[datetime | None, str | None]) -> dict[str, Any]:
    _, kind, stage = queue.split(".", 2)
    found = {"p_queue": queue, "p_kind": kind, "p_stage": stage, "p_until": until}
    return found if after[0] is None else found | {"p_after": after[0], "p_after_id": after[1]}


def _batch(selection: Selection, after: tuple[datetime | None, str | None]) -> sa.Select[Any]:
    """Reads one page of what is parked, and moves what matches of it."""
    moment = TIMESTAMP(timezone=True)
    place = [
        VISIT.c.queue == sa.bindparam("p_queue"),
        PARKED,
        VISIT.c.failed_at <= sa.bindparam("p_until", type_=moment),
    ]
    if after[0] is not None:
        since, last_id = sa.bindparam("p_after", type_=moment), sa.bindparam("p_after_id", type_=sa.Text)
        # The second says it all, but only the first is a bound that the index has.
        place += [
            VISIT.c.failed_at >= since,
            sa.or_(VISIT.c.failed_at > since, VISIT.c.entity_id > last_id),
        ]
    page = (
        sa.select(VISIT.c.entity_id, VISIT.c.failed_at, selection.matches().label("matches"))
        .where(*place)
        .order_by(VISIT.c.failed_at, VISIT.c.entity_id)
        .limit(PAGE)
        .cte("page")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    kind, stage = sa.bindparam("p_kind", type_=sa.Text), sa.bindparam("p_stage", type_=sa.Text)
    mine = _locked(page, "entity_id", kind, stage, page.c.matches, wait=False)
    moved = _waiting_again(mine).returning(VISIT.c.entity_id).cte("moved")
    last_first = (page.c.failed_at.desc(), page.c.entity_id.desc())

    def last(column: Any) -> Any:
        return sa.select(column).order_by(*last_first).limit(1).scalar_subquery()

    def count(source: sa.CTE, *condition: Any) -> Any:
        return sa.select(sa.func.count()).select_from(source).where(*condition).scalar_subquery()

    return sa.select(
        count(page).label("rows"),
        count(page, page.c.matches).label("matching"),
        count(moved).label("moved"),
        last(page.c.failed_at).label("failed_at"),
        last(page.c.entity_id).label("entity_id"),
    )


def _locked(given: Any, id_name: str, kind: Any, stage: Any, condition: Any, *, wait: bool) -> sa.CTE:
    """The rows of these entities that are parked still, each found by its whole key."""
    row = (
        sa.select(VISIT.c.kind, VISIT.c.entity_id, VISIT.c.stage)
        .where(VISIT.c.kind == kind, VISIT.c.entity_id == given.c[id_name], VISIT.c.stage == stage, PARKED)
        .with_for_update(skip_locked=not wait)
        .lateral("row")
    )
    query = sa.select(*row.c).select_from(sa.join(given, row, sa.true())).where(condition)
    return query.cte("own").prefix_with("MATERIALIZED", dialect="postgresql")


def _waiting_again(own: sa.CTE) -> sa.Update:
    c, now = VISIT.c, sa.func.clock_timestamp()
    main = sa.or_(c.due_at.is_not(None), c.again_at.is_not(None))
    values: dict[str, Any] = {
        "state": VisitState.WAITING,
        "due_at": sa.case((main, now)),
        "low_at": sa.case((~main, now)),
        "fields": joined_fields(c.fields, c.again_fields),
        **NOT_AGAIN,
        **dict.fromkeys(("not_before", "chain", "claimed_at", "claimed_by")),
        **dict.fromkeys(("error", "traceback", "seen_version", "seen_state_version", "failed_at")),
        "attempts": 0,
        "hops": 0,
    }
    same = [c[word] == own.c[word] for word in ("kind", "entity_id", "stage")]
    return sa.update(VISIT).where(*same).values(values)
