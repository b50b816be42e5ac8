"""What is kept of stages, and for how long."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.settings import settings
from stages import retention
from stages.model import VISIT, Resweep, ResweepPart, Stage


def walk(session: Session, kind: str, ended: timedelta | None) -> int:
    values = {"state": "running"} if ended is None else {"state": "done", "ended_at": sa.func.now() - ended}
    made = sa.insert(Resweep).values(kind=kind, stage="count", total=1, **values).returning(Resweep.id)
    number = int(session.execute(made).scalar_one())
    session.execute(sa.insert(ResweepPart).values(resweep_id=number, part=0, queue=f"stage.{kind}.resweep"))
    session.commit()
    return number


def test_walks_that_ended_are_kept_for_a_while(session: Session) -> None:
    kept = settings().log_retention
    long_ago = kept + timedelta(minutes=1)
    for kind in ("a", "b", "c"):
        walk(session, kind, long_ago)
    stay = {walk(session, "d", kept - timedelta(minutes=1)), walk(session, "e", None)}
    assert retention.run_once(limit=20) == retention.Report(walks=2, more=True)
    assert retention.run_once(limit=20) == retention.Report(walks=1)
    assert set(session.execute(sa.select(Resweep.id)).scalars()) == stay
    assert set(session.execute(sa.select(ResweepPart.resweep_id)).scalars()) == stay


def test_what_waits_for_a_stage_that_is_gone_is_kept_for_a_while(session: Session) -> None:
    kept = settings().log_retention
    for name, gone in (("old", kept * 2), ("recent", kept / 2), ("there", None)):
        removed = None if gone is None else sa.func.now() - gone
        words = {"task": f"shop.{name}", "module": "shop", "max_attempts": 1, "removed_at": removed}
        session.execute(sa.insert(Stage).values(kind="thing", name=name, **words))
        for number in range(3):
            when = "a timer in a year" if number else "parked"
            words = {"due_at": sa.func.now() + timedelta(days=365)} if number else {"state": "parked", "error": when}
            key = {"kind": "thing", "entity_id": str(number), "stage": name, "shard": 0}
            session.execute(sa.insert(VISIT).values(**key, queue=f"stage.thing.{name}", **words))
    session.commit()
    assert retention.run_once(limit=2) == retention.Report(visits=3, more=True)
    assert retention.run_once(limit=2) == retention.Report()
    left = session.execute(sa.select(VISIT.c.stage, sa.func.count()).group_by(VISIT.c.stage)).all()
    assert sorted(map(tuple, left)) == [("recent", 3), ("there", 3)]
