"""What sessions do to an entity in the queues of two stages, for `tests.kit.interleavings`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar

import sqlalchemy as sa

from app import claims
from app.claims import Claim, Cursor
from app.db import transaction
from app.outbox.model import EVENT
from recovery import record
from recovery import visits as lost_visits
from stages import Untouched, Updated
from stages.definition import queue_of
from stages.ending import Place
from stages.model import GUARD, VISIT, StageVisit
from stages.queue import offer
from tests.kit.stages_rows import Offer, Stages

LEASE = timedelta(hours=1)


def claim(stage: str, worker: str) -> Claim:
    return claims.take(Cursor(StageVisit, queue_of("offer", stage), guarded=True), 1, worker=worker, lease=LEASE)


class Visits:
    """`waits`: one entity, which two stages want; `late`: one of them visits it, and the lease is over."""

    DOMAIN: ClassVar[str] = record.VISIT
    NOTHING: ClassVar[Mapping[str, Hashable]] = {
        "claim": False,
        "other": False,
        "time": 0,
        # Left to the sweep.
        **dict.fromkeys(("finish", "leave", "fail")),
    }

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self.held: Claim | None = None
        self.does: Callable[[Any], Any] = lambda _: Untouched()
        stages.stage("one", does=lambda entity, _: self.does(entity))
        stages.stage("two")

    def begin(self, rows: str) -> None:
        stages = self.stages
        stages.sync()
        stages.put("a", price=1)
        stages.forget()
        for stage in ("one", "two"):
            offer("a", f"offer.{stage}")
        if rows == "late":
            self._hand_out()

    def _hand_out(self) -> None:
        self.held = claim("one", "w/late")
        past = sa.func.now() - timedelta(seconds=1)
        with transaction() as session:
            session.execute(sa.update(VISIT).where(VISIT.c.stage == "one").values(recovery_time=past))
            session.execute(sa.update(GUARD).values(until=past))

    def act(self, name: str) -> Hashable:
        match name.split()[0]:
            case "claim":
                return [row.entity_id for row in claim("one", f"w/{name}").rows] == ["a"]
            case "other":
                return [row.entity_id for row in claim("two", f"w/{name}").rows] == ["a"]
            case "offer":
                offer("a", "offer.one")
            case "change":
                with transaction() as session:
                    session.execute(sa.update(Offer).values(note=name))
            case "time":
                return lost_visits.run_once().lost
            case "finish":
                self._visit(_seven)
            case "leave":
                self._visit(lambda _: Untouched())
            case "fail":
                self._visit(_fail)
            case _:
                raise ValueError(name)
        return None

    def _visit(self, does: Callable[[Any], Any]) -> None:
        assert self.held is not None
        self.does = does
        server = self.stages.server("w/late", LEASE)
        place = server._place("offer", "one", queue_of("offer", "one"), None)
        assert place is not None
        server._batch(place, Place("offer", "one", guarded=True), self.held).work()

    def keep(self, results: Mapping[str, Any]) -> None:
        with transaction() as session:
            visits = {row.stage: row for row in session.execute(sa.select(VISIT))}
            price = session.execute(sa.select(Offer.price)).scalar_one()
        for act, stage in (("claim", "one"), ("other", "two")):
            for name, found in results.items():
                if name.startswith(act) and found:
                    # Nobody else has it.
                    assert (visits[stage].state, visits[stage].claimed_by) == ("running", f"w/{name}")
        # S12: one at a time.
        assert sum(each.state == "running" for each in visits.values()) <= 1
        if results.get("time out"):
            # What lost its claim has saved nothing.
            assert price == 1
        ended = price == 7 or "leave" in results
        if not ended or any(name.startswith("offer") for name in results):
            # S10: and what was asked for is made.
            assert "one" in visits
        assert "two" in visits

    def look(self) -> Hashable:
        """What waits and runs, who works on what, and what the entity has come to; after the sweep that comes by in the
        end: what was left to it is not lost."""
        lost_visits.run_once()
        c = VISIT.c
        running = sa.case((c.state == "running", c.claimed_by))
        with transaction() as session:
            return (
                *(_rows(session, sa.select(c.stage, c.state, running, c.again_at.is_not(None), c.alone))),
                *_rows(session, sa.select(GUARD.c.entity_id, GUARD.c.stage)),
                *_rows(session, sa.select(Offer.price, Offer.note, Offer.__table__.c.version)),
                *_rows(session, sa.select(sa.func.count()).select_from(EVENT)),
            )


def _seven(entity: Offer) -> Updated:
    entity.price = 7
    return Updated(entity)


def _fail(_entity: Offer) -> None:
    raise ValueError("on purpose")


def _rows(session: Any, query: Any) -> Iterator[Hashable]:
    return iter(sorted(map(tuple, session.execute(query)), key=str))
