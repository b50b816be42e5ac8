"""Stages and visits as rows, as workers leave them: nothing of their code is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from stages.definition import queue_of
from stages.model import GUARD, VISIT, EntityKind, Stage, StageState

_MANY = sa.text(
    """
    insert into tidemill.stage_visit
        (kind, entity_id, stage, queue, shard, due_at, state, attempts, error, failed_at, hops, chain)
    select :kind, 'e' || i, :stage, 'stage.' || :kind || '.' || :stage, tidemill.shard('e' || i), now(),
           cast(:state as tidemill.visit_state), 10, format(:error, i), now() - i * interval '1 ms', 3, 'a → b'
    from generate_series(1, :rows) i
    """
)


def register(session: Session, *names: str, kind: str = "offer", **more: Any) -> None:
    """Stages of a kind; committed."""
    session.merge(EntityKind(kind=kind, mode=more.pop("mode", "exclusive")))
    for name in names:
        words = {"task": f"shop.{name}", "module": "shop", "max_attempts": 10} | more
        session.merge(Stage(kind=kind, name=name, **words))
    session.commit()


def visit(
    session: Session,
    entity_id: str = "e1",
    stage: str = "predict",
    state: str = "waiting",
    *,
    kind: str = "offer",
    **more: Any,
) -> None:
    """An entry of the queue; committed. `claimed_by`: it is being visited, under a guard."""
    values: dict[str, Any] = {"due_at": sa.func.now(), **more}
    if state == "running":
        values = {
            "pass_key": sa.func.gen_random_uuid(),
            "recovery_time": sa.func.now() + timedelta(minutes=1),
            "claimed_by": "w/1",
            "claimed_at": sa.func.now(),
        } | values
    if state == "parked":
        values = {"error": "ValueError: no", "failed_at": sa.func.clock_timestamp(), "attempts": 10} | values
    key = {"kind": kind, "entity_id": entity_id, "stage": stage}
    shard = sa.func.tidemill.shard(entity_id)
    session.execute(sa.insert(VISIT).values(**key, queue=queue_of(kind, stage), state=state, shard=shard, **values))
    session.commit()


def many(
    session: Session, rows: int, *, stage: str = "predict", state: str = "parked", error: str = "no price %s"
) -> None:
    """With statistics that know of them. `%s` in the error is the number of the entity."""
    parameters = {"kind": "offer", "stage": stage, "state": state, "error": error, "rows": rows}
    session.execute(_MANY, parameters)
    session.execute(sa.text("analyze tidemill.stage_visit"))
    session.commit()


def guard(
    session: Session,
    entity_id: str = "e1",
    stage: str = "predict",
    until: timedelta = timedelta(minutes=1),
    kind: str = "offer",
) -> None:
    """Of the visit that works for the stage, if one does."""
    mine = sa.select(VISIT.c.pass_key).where(VISIT.c.entity_id == entity_id, VISIT.c.stage == stage)
    pass_key = sa.func.coalesce(mine.scalar_subquery(), sa.func.gen_random_uuid())
    values = {"kind": kind, "entity_id": entity_id, "stage": stage}
    session.execute(sa.insert(GUARD).values(**values, pass_key=pass_key, until=sa.func.now() + until))
    session.commit()


def state(
    session: Session,
    entity_id: str,
    stage: str,
    type_url: str,
    value: bytes,
    version: int = 1,
    kind: str = "offer",
) -> None:
    words = {"type_url": type_url, "value": value, "version": version}
    session.add(StageState(kind=kind, entity_id=entity_id, stage=stage, **words))
    session.commit()


def row(session: Session, entity_id: str = "e1", stage: str = "predict") -> Mapping[str, Any] | None:
    """As it is now."""
    session.rollback()
    found = session.execute(sa.select(*VISIT.c).where(VISIT.c.entity_id == entity_id, VISIT.c.stage == stage))
    one = found.one_or_none()
    return None if one is None else dict(one._mapping)


def states(session: Session, stage: str = "predict") -> dict[str, str]:
    """By entity."""
    session.rollback()
    rows = session.execute(sa.select(VISIT.c.entity_id, VISIT.c.state).where(VISIT.c.stage == stage))
    return {row.entity_id: str(row.state) for row in rows}


def now(session: Session) -> datetime:
    session.rollback()
    found: datetime = session.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return found


def errors(session: Session, texts: Sequence[str], stage: str = "predict", kind: str = "offer") -> None:
    """A parked visit for each text, of the entities `entity-1`, …"""
    for number, text in enumerate(texts, 1):
        visit(session, f"entity-{number}", stage, "parked", error=text, kind=kind)
