"""Claims against a naive model in memory: random offers, claims, ends, give-backs, crashes (S2, S10, S17)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import claims
from app.claims import Lane, PassKey
from app.db import engine, transaction
from tests.kit import visit
from tests.kit.tables import LEASE, Table
from tests.kit.visit import Visit

VISITS = Table(Visit)
LOST = timedelta(seconds=-1)
#: Seconds from the beginning of a run; what lies ahead does not come within one.
TIMES = st.integers(-1000, -1) | st.integers(3600, 7200)
NUMBERS = st.integers(1, 5)


@dataclass
class Row:
    """What the model knows of a visit."""

    due: int | None = None
    low: int | None = None
    again: int | None = None
    state: str = "waiting"
    attempts: int = 0
    alone: bool = False

    def at(self, lane: Lane) -> int | None:
        return self.due if lane is Lane.MAIN else self.low

    def asked(self, at: int, lane: Lane) -> None:
        if self.state == "running":
            self.again = at if self.again is None else min(self.again, at)
        elif lane is Lane.MAIN:
            self.due = at if self.due is None else min(self.due, at)
        else:
            self.low = at if self.low is None else min(self.low, at)

    def back(self) -> None:
        asked = [at for at in (self.due, self.again) if at is not None]
        self.due, self.again, self.state = min(asked) if asked else None, None, "waiting"


@dataclass
class Held:
    pass_key: PassKey
    numbers: list[int]
    lost: bool


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine = engine()
        self.rows: dict[int, Row] = {}
        self.held: list[Held] = []
        self.cursors = {lane: VISITS.cursor(lane=lane) for lane in Lane}
        with transaction() as session:
            session.execute(sa.delete(Visit))
            self.begin: datetime = session.execute(sa.select(sa.func.now())).scalar_one()

    @rule(number=NUMBERS, at=TIMES, lane=st.sampled_from(Lane))
    def offer(self, number: int, at: int, lane: Lane) -> None:
        with transaction() as session:
            visit.offer(session, visit.entity(number), self.begin + timedelta(seconds=at), lane)
        self.rows.setdefault(number, Row()).asked(at, lane)

    @rule(want=st.sampled_from([1, 3]), lane=st.sampled_from(Lane), lost=st.booleans())
    def take(self, want: int, lane: Lane, lost: bool) -> None:  # noqa: FBT001
        # From the head: where a cursor stands is a matter of speed, and has tests of its own.
        claim = VISITS.take(want, lane=lane, lease=LOST if lost else LEASE)
        taken = [key[1] for key in VISITS.taken(claim)]
        assert taken == self.best(lane, want)
        for number in taken:
            row = self.rows[number]
            row.state, row.attempts = "running", row.attempts + 1
        if taken:
            self.held.append(Held(claim.pass_key, taken, lost))

    def best(self, lane: Lane, want: int) -> list[int]:
        ready = sorted(
            (at, number)
            for number, row in self.rows.items()
            if row.state == "waiting" and (at := row.at(lane)) is not None and at < 0
        )[:want]
        numbers = [number for _, number in ready]
        if numbers and self.rows[numbers[0]].alone:
            return numbers[:1]
        return [number for number in numbers if not self.rows[number].alone]

    @precondition(lambda self: self.held)
    @rule(data=st.data(), how=st.sampled_from(["finish", "give_back", "charge", "park"]))
    def end(self, data: st.DataObject, how: str) -> None:
        held = data.draw(st.sampled_from(self.held))
        number = data.draw(st.sampled_from(held.numbers))
        key = [visit.entity(number)]
        with transaction() as tx:
            found: Any
            if how == "finish":
                found = claims.finish(tx, Visit, held.pass_key, key)
            elif how == "park":
                found = claims.park(tx, Visit, held.pass_key, key)
            else:
                found = claims.give_back(tx, Visit, held.pass_key, key, charged=how == "charge")
        assert len(found) == 1
        self.ended(held, number, how)

    def ended(self, held: Held, number: int, how: str) -> None:
        row = self.rows[number]
        if how == "park":
            row.state = "parked"
        elif how != "finish":
            row.back()
            row.attempts -= how == "give_back"
        elif row.again is not None:
            self.rows[number] = Row(due=row.again)
        else:
            del self.rows[number]
        held.numbers.remove(number)
        self.held = [each for each in self.held if each.numbers]

    @rule()
    def sweep(self) -> None:
        lost = [held for held in self.held if held.lost]
        states = {key[1]: state for key, state in VISITS.sweep().items()}
        assert states.keys() == {number for held in lost for number in held.numbers}
        for held in lost:
            for number in held.numbers:
                self.swept(self.rows[number], in_batch=len(held.numbers) > 1)
                assert states[number] == self.rows[number].state
        with transaction() as session:
            session.execute(sa.update(Visit).values(not_before=None))  # as if the backoff had passed
            self.late(session, lost)
        self.held = [held for held in self.held if not held.lost]

    def swept(self, row: Row, *, in_batch: bool) -> None:
        row.back()
        if in_batch:
            row.attempts, row.alone = row.attempts - 1, True
        elif row.attempts >= 3:
            row.state = "parked"

    def late(self, session: Session, lost: list[Held]) -> None:
        for held in lost:
            keys = [visit.entity(number) for number in held.numbers]
            assert claims.finish(session, Visit, held.pass_key, keys) == []
            assert claims.extend(session, Visit, held.pass_key, keys, LEASE) == set()

    @rule(number=NUMBERS)
    def redrive(self, number: int) -> None:
        if number in self.rows and self.rows[number].state == "parked":
            with transaction() as session:
                session.execute(sa.update(Visit).where(Visit.entity_id == number).values(state="waiting", attempts=0))
            self.rows[number].state, self.rows[number].attempts = "waiting", 0

    @invariant()
    def the_table_is_the_model(self) -> None:
        with self.engine.connect() as connection:
            found = {row.entity_id: self.seen(row) for row in connection.execute(sa.select(Visit.__table__))}
        assert found == self.rows

    def seen(self, row: Any) -> Row:
        due, low, again = (
            None if at is None else round((at - self.begin).total_seconds())
            for at in (row.due_at, row.low_at, row.again_at)
        )
        assert (row.state == "running") == (row.pass_key is not None) == (row.recovery_time is not None)
        return Row(due, low, again, row.state, row.attempts, row.alone)


@pytest.mark.usefixtures("database_url")
def test_claims_do_what_the_model_does() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
