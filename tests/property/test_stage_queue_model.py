"""The queue of stages against a keyed queue with dirty marks, in memory: no visit is lost, no entity is worked on twice
at once, and the earliest time counts, whatever comes in which order (S2, S10, S12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from app import claims
from app.claims import Cursor, Lane, PassKey
from app.db import transaction
from recovery import visits as lost_visits
from stages import ending, queue
from stages.definition import SYSTEM, queue_of
from stages.ending import Done, Failed, Offer, Place
from stages.model import GUARD, VISIT, StageVisit
from tests.kit import stages_rows
from tests.kit.stages_rows import Stages, execute

LOST, HELD = timedelta(seconds=-1), timedelta(hours=100)
#: Seconds from the beginning of a run, by the hundred: what is done at once takes less.
STEP, LEAP = 100, 7200
TIMES = st.integers(-10, -1).map(lambda n: n * STEP) | st.integers(36, 70).map(lambda n: n * STEP)
IDS, STAGES, LANES = st.sampled_from("abc"), st.sampled_from(["one", "two"]), st.sampled_from(Lane)
Key = tuple[str, str]


# The model


@dataclass
class Entry:
    times: dict[Lane, int] = field(default_factory=dict)
    #: Asked for while it was not waiting.
    dirty: dict[Lane, int] = field(default_factory=dict)
    state: str = "waiting"
    holder: int = 0
    paused: bool = False

    def ask(self, lane: Lane, at: int) -> None:
        asked = self.times if self.state == "waiting" else self.dirty
        asked[lane] = min(at, asked.get(lane, at))

    def wait(self, *times: dict[Lane, int], paused: bool = False) -> None:
        merged = {
            lane: min(each[lane] for each in times if lane in each) for lane in Lane if any(lane in t for t in times)
        }
        self.times, self.dirty, self.state, self.holder, self.paused = merged, {}, "waiting", 0, paused


@dataclass
class Model:
    entries: dict[Key, Entry] = field(default_factory=dict)
    #: Which claim works on an entity.
    guards: dict[str, int] = field(default_factory=dict)

    def ask(self, key: Key, lane: Lane, at: int) -> None:
        self.entries.setdefault(key, Entry()).ask(lane, at)

    def ready(self, stage: str, lane: Lane, lost: set[int]) -> set[str]:
        def free(entity: str) -> bool:
            return stage == SYSTEM or entity not in self.guards or self.guards[entity] in lost

        waiting = {key: each for key, each in self.entries.items() if each.state == "waiting" and not each.paused}
        return {e for (e, s), each in waiting.items() if s == stage and each.times.get(lane, 1) <= 0 and free(e)}


# The machine


@dataclass
class Claim:
    number: int
    stage: str
    pass_key: PassKey
    ids: list[str]


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model, self.claims, self.count = Model(), dict[int, Claim](), 0
        #: Claims whose lease is over.
        self.lost: set[int] = set()
        execute("DELETE FROM tidemill.stage_visit")
        execute("DELETE FROM tidemill.entity_guard")
        execute("DELETE FROM offer")
        self.begin: datetime = execute("SELECT now()")[0].now

    def at(self, seconds: int) -> datetime:
        return self.begin + timedelta(seconds=seconds)

    @rule(entities=st.lists(IDS, min_size=1, max_size=3), stage=STAGES, lane=LANES, at=TIMES)
    def offer(self, entities: list[str], stage: str, lane: Lane, at: int) -> None:
        queue.offer_many(entities, f"offer.{stage}", self.at(at), low=lane is Lane.LOW)
        for entity in entities:
            self.model.ask((entity, stage), lane, at)

    @rule(entity=IDS, stage=STAGES, how=st.sampled_from(["change", "change", "change", "delete", "take out"]))
    def write(self, entity: str, stage: str, how: str) -> None:
        if how == "change":
            self.change(entity)
        elif how == "delete":
            self.delete(entity)
        else:
            self.take_out(entity, stage)

    def change(self, entity: str) -> None:
        execute("INSERT INTO offer (id) VALUES (:id) ON CONFLICT (id) DO UPDATE SET price = 1", id=entity)
        self.model.ask((entity, SYSTEM), Lane.MAIN, 0)

    def delete(self, entity: str) -> None:
        gone = execute("DELETE FROM offer WHERE id = :id RETURNING id", id=entity)
        if gone:
            self.model.entries = {key: each for key, each in self.model.entries.items() if key[0] != entity}
            self.model.guards.pop(entity, None)

    def take_out(self, entity: str, stage: str) -> None:
        entry = self.model.entries.pop((entity, stage), None)
        assert queue.delete(entity, f"offer.{stage}") is (entry is not None)
        if entry is not None and self.model.guards.get(entity) == entry.holder:
            del self.model.guards[entity]

    def places(self) -> list[tuple[str, Lane]]:
        """Where there is something to take, or at least something."""
        places = [(stage, lane) for stage in ("one", "two", SYSTEM) for lane in Lane]
        return [each for each in places if self.model.ready(*each, self.lost)] or places

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data(), want=st.sampled_from([1, 3, 10]), lost=st.sampled_from([False, False, True]))
    def take(self, data: st.DataObject, want: int, lost: bool) -> None:  # noqa: FBT001
        stage, lane = data.draw(st.sampled_from(self.places()))
        self.count += 1
        cursor = Cursor(StageVisit, queue_of("offer", stage), lane, guarded=stage != SYSTEM)
        claim = claims.take(cursor, want, worker="w/1", lease=LOST if lost else HELD)
        ids = [row.entity_id for row in claim.rows]
        ready = self.model.ready(stage, lane, self.lost)
        assert set(ids) <= ready
        assert len(ids) == len(set(ids)) == min(want, len(ready))
        for entity in ids:
            entry = self.model.entries[entity, stage]
            entry.state, entry.holder = "running", self.count
            if stage != SYSTEM:
                self.model.guards[entity] = self.count
        if ids:
            self.claims[self.count] = Claim(self.count, stage, claim.pass_key, ids)
            self.lost |= {self.count} if lost else set()

    def drawn(self, data: st.DataObject) -> tuple[Claim, str, Entry | None]:
        """A visit that some worker believes to be its own; the entry where it is."""
        claim = self.claims[data.draw(st.sampled_from(sorted(self.claims)))]
        entity = data.draw(st.sampled_from(claim.ids))
        claim.ids.remove(entity)
        if not claim.ids:
            del self.claims[claim.number]
        entry = self.model.entries.get((entity, claim.stage))
        return claim, entity, entry if entry is not None and entry.holder == claim.number else None

    def freed(self, claim: Claim, entity: str) -> None:
        if self.model.guards.get(entity) == claim.number:
            del self.model.guards[entity]

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), how=st.sampled_from(["finish", "finish", "back", "pause", "park"]))
    def end(self, data: st.DataObject, how: str) -> None:
        drawn = self.drawn(data)
        if how == "finish":
            self.finish(
                *drawn, data.draw(st.none() | TIMES), data.draw(st.none() | TIMES), wait=data.draw(st.booleans())
            )
        else:
            self.fail(*drawn, how)

    def finish(
        self, claim: Claim, entity: str, entry: Entry | None, timer: int | None, asks: int | None, *, wait: bool
    ) -> None:
        other = "two" if claim.stage == "one" else "one"
        done = [Done(entity, None if timer is None else self.at(timer))]
        offers = [] if asks is None else [Offer(entity, other, self.at(asks))]
        place = Place("offer", claim.stage, guarded=claim.stage != SYSTEM)
        with transaction() as session:
            ended = ending.complete(session, place, claim.pass_key, done, offers, wait=wait)
        ours = entry is not None and (claim.stage == SYSTEM or self.model.guards.get(entity) == claim.number)
        assert ended == ({entity} if ours else set())
        if entry is None or not ours:
            return
        self.freed(claim, entity)
        armed = {} if timer is None else {Lane.MAIN: timer}
        if entry.dirty or armed:
            entry.wait(entry.dirty, armed)
        else:
            del self.model.entries[entity, claim.stage]
        if asks is not None:
            self.model.ask((entity, other), Lane.MAIN, asks)

    def fail(self, claim: Claim, entity: str, entry: Entry | None, how: str) -> None:
        again = {"back": timedelta(0), "pause": timedelta(hours=1), "park": None}[how]
        place = Place("offer", claim.stage, guarded=claim.stage != SYSTEM)
        with transaction() as session:
            ended = ending.failed(session, place, claim.pass_key, [Failed(entity, "error", again=again)])
        assert ended == ({entity} if entry else set())
        if entry is None:
            return
        self.freed(claim, entity)
        if how == "park":
            dirty = entry.dirty
            entry.wait(entry.times, entry.dirty)
            entry.state, entry.dirty = "parked", dirty
        else:
            entry.wait(entry.times, entry.dirty, paused=how == "pause")

    @precondition(lambda self: self.lost)
    @rule()
    def sweep(self) -> None:
        with patch.object(lost_visits, "settings", lambda: type("S", (), {"lease": timedelta(0)})):
            lost_visits.run_once()
        for (entity, stage), entry in self.model.entries.items():
            if entry.state == "running" and entry.holder in self.lost:
                if self.model.guards.get(entity) == entry.holder:
                    del self.model.guards[entity]
                entry.wait(entry.times, entry.dirty)
                # It comes back alone, after a pause; as if that were over.
                mine = (VISIT.c.entity_id == entity) & (VISIT.c.stage == stage)
                execute(sa.update(VISIT).where(mine).values(alone=False, not_before=None, attempts=0))

    @precondition(lambda self: any(each.paused or max(each.times.values()) > 0 for each in self.model.entries.values()))
    @rule()
    def time_passes(self) -> None:
        leap = timedelta(seconds=LEAP)
        names = ("due_at", "low_at", "again_at", "again_low_at", "not_before")
        execute(sa.update(VISIT).values({name: VISIT.c[name] - leap for name in names}))
        for entry in self.model.entries.values():
            entry.paused = False
            for times in (entry.times, entry.dirty):
                times.update({lane: at - LEAP for lane, at in times.items()})

    @invariant()
    def the_table_is_the_model(self) -> None:
        rows = {(row.entity_id, row.stage): self.seen(row) for row in execute(sa.select(VISIT))}
        assert rows == {key: (e.state, e.times, e.dirty) for key, e in self.model.entries.items()}

    @invariant()
    def nobody_works_on_an_entity_twice_at_once(self) -> None:
        passes = {row.entity_id: row.pass_key for row in execute(sa.select(GUARD))}
        assert passes.keys() == self.model.guards.keys()
        rows = execute(sa.select(VISIT).where(VISIT.c.state == "running", VISIT.c.stage != SYSTEM))
        holders = [row.entity_id for row in rows if passes.get(row.entity_id) == row.pass_key]
        assert len(holders) == len(set(holders))

    def seen(self, row: Any) -> tuple[str, dict[Lane, int], dict[Lane, int]]:
        return str(row.state), self._times(row.due_at, row.low_at), self._times(row.again_at, row.again_low_at)

    def _times(self, main: datetime | None, low: datetime | None) -> dict[Lane, int]:
        found = {Lane.MAIN: main, Lane.LOW: low}
        return {
            lane: round((at - self.begin).total_seconds() / STEP) * STEP for lane, at in found.items() if at is not None
        }


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with stages_rows.world() as found:
        for name in ("one", "two"):
            found.stage(name)
        yield found


@pytest.mark.usefixtures("stages")
def test_the_queue_does_what_the_model_does() -> None:
    # S2 S10 S12
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
