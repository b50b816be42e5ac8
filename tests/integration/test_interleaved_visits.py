"""Visits of stages: claim, begin and finish, time out and offer, in every order of their statements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from app import claims
from app.alarm import alarm
from app.claims import Claim, Cursor, lost
from app.db import transaction
from app.outbox.model import EVENT
from recovery import record
from recovery import visits as lost_visits
from stages import Untouched, Updated
from stages.definition import queue_of
from stages.ending import Place
from stages.model import GUARD, VISIT, StageVisit
from stages.queue import offer
from tests.kit.interleavings import Interleavings
from tests.kit.stages_rows import Offer, Stages
from tests.kit.stages_rows import world as shop

LEASE = timedelta(hours=1)


def claim(stage: str, worker: str) -> Claim:
    return claims.take(Cursor(StageVisit, queue_of("offer", stage), guarded=True), 1, worker=worker, lease=LEASE)


class World:
    """One entity, which two stages want."""

    def __init__(self, stages: Stages) -> None:
        self.stages, self.held = stages, None
        self.does: Callable[[Any], Any] = lambda _: Untouched()
        stages.stage("one", does=lambda entity, _: self.does(entity))
        stages.stage("two")
        stages.sync()
        stages.put("a", price=1)
        stages.forget()
        for stage in ("one", "two"):
            offer("a", f"offer.{stage}")

    def hand_out(self) -> None:
        """To a worker whose lease is over."""
        self.held = claim("one", "w/late")
        past = sa.func.now() - timedelta(seconds=1)
        with transaction() as session:
            session.execute(sa.update(VISIT).where(VISIT.c.stage == "one").values(recovery_time=past))
            session.execute(sa.update(GUARD).values(until=past))

    def acts(self, *names: str) -> dict[str, Callable[[], Hashable]]:
        return {name: lambda name=name: self.act(name) for name in names}

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
                self.visit(_seven)
            case "leave":
                self.visit(lambda _: Untouched())
            case "fail":
                self.visit(_fail)
        return None

    def visit(self, does: Callable[[Any], Any]) -> None:
        assert self.held is not None
        self.does = does
        server = self.stages.server("w/late", LEASE)
        place = server._place("offer", "one", queue_of("offer", "one"), None)
        assert place is not None
        server._batch(place, Place("offer", "one", guarded=True), self.held).work()


def _seven(entity: Offer) -> Updated:
    entity.price = 7
    return Updated(entity)


def _fail(_entity: Offer) -> None:
    raise ValueError("on purpose")


def look() -> Hashable:
    """What waits and runs, who works on what, and what the entity has come to."""
    c = VISIT.c
    running = sa.case((c.state == "running", c.claimed_by))
    with transaction() as session:
        return (
            *(_rows(session, sa.select(c.stage, c.state, running, c.attempts, c.again_at.is_not(None), c.alone))),
            *_rows(session, sa.select(GUARD.c.entity_id, GUARD.c.stage)),
            *_rows(session, sa.select(Offer.price, Offer.note, Offer.__table__.c.version)),
            *_rows(session, sa.select(sa.func.count()).select_from(EVENT)),
        )


def _rows(session: Any, query: Any) -> Iterator[Hashable]:
    return iter(sorted(map(tuple, session.execute(query)), key=str))


@pytest.fixture
def world(every: Interleavings) -> Iterator[World]:
    # What is put back is ready at once.
    with shop() as stages, patch.object(lost, "DELAY", timedelta(0)):
        alarm._installed = False
        yield World(stages)


NOTHING = {"claim": False, "other": False, "time": 0}


def nothing(names: tuple[str, ...]) -> dict[str, Hashable]:
    return {name: NOTHING[word] for name in names if (word := name.split()[0]) in NOTHING}


WAITS = [("claim 1", "claim 2"), ("claim", "other"), ("claim", "offer"), ("offer 1", "offer 2")]


@pytest.mark.parametrize("names", WAITS, ids=" and ".join)
def test_of_what_waits(names: tuple[str, ...], every: Interleavings, world: World) -> None:
    # S2 S12
    every.start_from_here(record.VISIT)
    print(names, every.order(world.acts(*names), look, nothing(names)))


LATE = [
    *((one, two) for one in ("finish", "leave", "fail") for two in ("time out", "offer", "other")),
    ("finish", "change"),
    ("time out", "offer"),
    ("time out", "other"),
    ("time out", "claim"),
    ("time out 1", "time out 2"),
]


@pytest.mark.parametrize("names", LATE, ids=" and ".join)
def test_of_what_runs(names: tuple[str, ...], every: Interleavings, world: World) -> None:
    # S6 S9 S10 S12
    world.hand_out()
    every.start_from_here(record.VISIT)
    print(names, every.order(world.acts(*names), look, nothing(names)))
