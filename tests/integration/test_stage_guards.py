"""Exclusive mode: at any moment at most one stage works on an entity, whatever happens (S12); the order of locks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import claims
from app.claims import Cursor
from app.db import engine, transaction
from recovery import record
from stages import Patch, Untouched, ending, queue
from stages.definition import queue_of
from stages.ending import Done, Place
from stages.model import GUARD, StageVisit
from stages.queue import offer_many
from tests.kit.faults import Crashed, crash_at, pause_at
from tests.kit.stages_rows import LEASE, Lot, Offer, Stages, entity, execute, visit, visits, waiting, world
from tests.kit.waiting import wait_until


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as found:
        yield found


def two(stages: Stages, of: type = Offer, **first: Any) -> str:
    for name in ("one", "two"):
        stages.stage(name, of=of, **(first if name == "one" else {}))
    kind = "offer" if of is Offer else "lot"
    stages.put("a", "b", of=of)
    stages.forget()
    for name in ("one", "two"):
        offer_many(["a", "b"], f"{kind}.{name}")
    return kind


def guards() -> list[tuple[str, str]]:
    return [(row.entity_id, row.stage) for row in execute(sa.select(GUARD).order_by(GUARD.c.entity_id))]


def take(stage: str, kind: str = "offer", want: int = 10, **where: Any) -> claims.Claim:
    return claims.take(cursor(stage, kind), want, worker="w/9", lease=where.pop("lease", LEASE))


def cursor(stage: str, kind: str = "offer") -> Cursor:
    return Cursor(StageVisit, queue_of(kind, stage), guarded=kind == "offer")


def ids(claim: claims.Claim) -> list[str]:
    return [row.entity_id for row in claim.rows]


# One at a time


@pytest.mark.parametrize(("first", "second"), [("one", "two"), ("two", "one")])
def test_while_one_stage_works_on_an_entity_no_other_does(stages: Stages, first: str, second: str) -> None:
    # S12
    two(stages)
    mine = take(first)
    assert ids(mine) == ["a", "b"]
    assert guards() == [("a", first), ("b", first)]
    assert ids(take(second)) == []
    with transaction() as session:
        done = [Done("a")]
        assert ending.complete(session, Place("offer", first, guarded=True), mine.pass_key, done, wait=True) == {"a"}
    assert ids(take(second)) == ["a"]
    assert guards() == [("a", second), ("b", first)]


@pytest.mark.parametrize(("first", "second"), [("one", "two"), ("two", "one")])
def test_in_optimistic_mode_several_do(stages: Stages, first: str, second: str) -> None:
    # S12
    two(stages, of=Lot)
    assert ids(take(first, "lot")) == ids(take(second, "lot")) == ["a", "b"]
    assert guards() == []


@pytest.mark.parametrize(("first", "second"), [("one", "two"), ("two", "one")])
def test_of_two_claims_at_once_one_gets_an_entity(
    stages: Stages, threads: ThreadPoolExecutor, first: str, second: str
) -> None:
    # S12
    two(stages)
    with Session(engine()) as session:
        # The first has chosen and taken its guards, and has not committed; the second sees all of them free.
        pass_key, form = claims.Form(size=10, guarded=True), claims.statements.claiming
        rows = session.execute(form(StageVisit, pass_key), _parameters(first)).all()
        assert len([row for row in rows if row.ready is not None]) == 2
        other: Future[claims.Claim] = threads.submit(take, second)
        wait_until(lambda: _blocked() == 1)
        session.commit()
        assert ids(other.result(60)) == []
    assert guards() == [("a", first), ("b", first)]
    assert [row.state for row in visits(second)] == ["waiting", "waiting"]


def _parameters(stage: str) -> dict[str, Any]:
    return {
        "p_queue": queue_of("offer", stage),
        "p_after": None,
        "p_pass_key": claims.taking.new_pass(),
        "p_lease": LEASE,
        "p_worker": "w/8",
    }


def _blocked() -> int:
    return int(execute("SELECT count(*) AS number FROM pg_locks WHERE NOT granted")[0].number)


@pytest.mark.parametrize("of", [Offer, Lot])
@pytest.mark.parametrize(("first", "second"), [("one", "two"), ("two", "one")])
def test_two_servers_at_one_entity(
    stages: Stages, threads: ThreadPoolExecutor, of: type, first: str, second: str
) -> None:
    # S12
    inside, go_on = threading.Event(), threading.Event()

    def stay(_entity: Any, _state: object) -> Untouched:
        inside.set()
        assert go_on.wait(60)
        return Untouched()

    kind = "offer" if of is Offer else "lot"
    stages.stage(first, of=of, does=stay)
    stages.stage(second, of=of)
    stages.put("a", of=of)
    stages.forget()
    for name in (first, second):
        offer_many(["a"], f"{kind}.{name}")
    working = threads.submit(stages.serve, first, kind)
    assert inside.wait(60)
    try:
        assert stages.serve(second, kind) == (0 if of is Offer else 1)
    finally:
        go_on.set()
    assert working.result(60) == 1
    assert stages.serve(second, kind) == (1 if of is Offer else 0)
    assert waiting() == guards() == []


def test_the_system_stage_needs_no_guard(stages: Stages) -> None:
    # S12
    two(stages)
    take("one")
    execute("UPDATE offer SET price = 1")
    assert stages.serve() == 2


def test_an_entity_that_is_worked_on_does_not_hold_up_the_others(stages: Stages) -> None:
    # S12
    two(stages)
    ids(take("one", want=1))
    assert guards() == [("a", "one")]
    assert stages.serve("two") == 1
    assert stages.made == [("two", "b")]


# Guards that outlive who took them


def test_an_expired_guard_is_taken_over_and_the_late_worker_saves_nothing(stages: Stages) -> None:
    # S12
    def late(offer: Offer, _state: object) -> Patch:
        if offer.id == "a" and len(stages.made) == 1:
            execute("UPDATE tidemill.entity_guard SET until = now() - interval '1 s' WHERE entity_id = 'a'")
            assert stages.serve("two") == 1
            assert stages.made[-1] == ("two", "a")
        return Patch({"price": 5})

    two(stages, does=late)
    stages.serve("one")
    assert (entity("a").price, entity("a").version) == (None, 1)
    assert (entity("b").price, entity("b").version) == (5, 2)
    assert ("a", "one") in waiting(), "it is made again"


def test_a_worker_that_is_late_while_another_works_saves_nothing(stages: Stages) -> None:
    # S12
    two(stages)
    mine = take("one")
    execute("UPDATE tidemill.entity_guard SET until = now() - interval '1 s'")
    other = take("two")
    assert ids(other) == ["a", "b"]
    with transaction() as session:
        place = Place("offer", "one", guarded=True)
        assert ending.complete(session, place, mine.pass_key, [Done("a"), Done("b")], wait=True) == set()
    assert guards() == [("a", "two"), ("b", "two")]
    assert {row.pass_key for row in execute(sa.select(GUARD.c.pass_key))} == {other.pass_key}


def test_a_crash_frees_the_entity_with_the_sweep(stages: Stages) -> None:
    # S12 S17
    two(stages)
    with crash_at("visits.processed"), pytest.raises(Crashed):
        stages.serve("one")
    assert (stages.serve("two"), guards()) == (0, [("a", "one"), ("b", "one")])
    report = stages.sweep()
    assert (report.lost, report.parked, guards()) == (2, 0, [])
    assert [(row.state, row.attempts, row.alone) for row in visits("one")] == [("waiting", 0, True)] * 2
    assert stages.serve("two") == 2
    assert stages.sweep().lost == 0, "a second sweep changes nothing"


def test_who_dies_alone_too_often_is_parked(stages: Stages) -> None:
    # S17, R7
    stages.stage("publish", max_attempts=2)
    stages.sync()
    stages.asked("a")
    for _ in range(2):
        stages.all_due()
        with crash_at("visits.processed"), pytest.raises(Crashed):
            stages.serve("publish")
        report = stages.sweep()
    row = visit("a", "publish")
    assert (report.parked, row.state, row.attempts) == (1, "parked", 2)
    assert row.error == "its worker died at it, alone, 2 times"
    assert guards() == []
    with transaction() as session:
        repairs = record.listed(session)
    assert [(each.domain, each.subject, each.action) for each in repairs] == [
        ("visit", "offer a publish", action) for action in ("parked", "queued")
    ]


def test_what_was_swept_is_saved_by_nobody_who_comes_late(stages: Stages) -> None:
    # S12
    two(stages)
    mine = take("one")
    stages.sweep()
    execute("UPDATE tidemill.stage_visit SET alone = false")
    again = take("one")
    for claim, ended in ((mine, set[str]()), (again, {"a", "b"})):
        with transaction() as session:
            place, done = Place("offer", "one", guarded=True), [Done("a"), Done("b")]
            assert ending.complete(session, place, claim.pass_key, done, wait=True) == ended


def test_a_failed_visit_frees_its_entity(stages: Stages) -> None:
    # S12 S17
    two(stages, does=lambda *_: 1 / 0)
    stages.serve("one")
    assert guards() == []
    assert stages.serve("two") == 2


def test_a_worker_that_stops_frees_what_it_has_not_begun(stages: Stages) -> None:
    # S12
    two(stages)
    server = stages.server(stopping=lambda: bool(stages.made))
    assert server.serve("stage.offer.one", 10)[0] == 2
    assert stages.made == [("one", "a")]
    row = visit("b", "one")
    assert (row.state, row.attempts, row.not_before) == ("waiting", 0, None)
    assert guards() == []


# Locks


def test_who_writes_backwards_while_a_batch_saves_meets_no_deadlock(
    stages: Stages, threads: ThreadPoolExecutor
) -> None:
    # S9
    stages.stage("publish", does=Patch({"status": "live"}))
    stages.asked("a", "b")
    with pause_at("finish.before_commit") as paused, Session(engine()) as stranger:
        stranger.execute(sa.text("UPDATE offer SET price = 1 WHERE id = 'b'"))
        saving = threads.submit(stages.serve, "publish")
        paused.wait()
        # The batch holds `a`, and has passed over `b`, which the stranger holds and wants `a` with.
        writing = threads.submit(stranger.execute, sa.text("UPDATE offer SET price = 1 WHERE id = 'a'"))
        wait_until(lambda: _blocked() == 1)
        paused.go_on()
        writing.result(60)
        stranger.commit()
        assert saving.result(60) >= 2
    stages.all_due()
    stages.serve("publish")
    assert [(entity(each).status, entity(each).price) for each in "ab"] == [("live", 1)] * 2


ENTITY = "UPDATE offer SET price = 1 WHERE id = 'a'"
QUEUE = "SELECT 1 FROM tidemill.stage_visit WHERE entity_id = 'a' FOR UPDATE"
GUARDED = "UPDATE tidemill.entity_guard SET until = now() WHERE entity_id = 'a'"
STATE = "UPDATE tidemill.stage_state SET version = version + 1 WHERE entity_id = 'a'"


@pytest.mark.parametrize(
    ("first", "second"), [(ENTITY, QUEUE), (ENTITY, GUARDED), (QUEUE, GUARDED), (QUEUE, STATE), (GUARDED, STATE)]
)
@pytest.mark.parametrize("lawful", [True, False])
def test_the_order_of_locks_is_what_keeps_from_deadlocks(
    stages: Stages, threads: ThreadPoolExecutor, first: str, second: str, *, lawful: bool
) -> None:
    """Entities, entries, guards, states: two who keep to it wait for each other; one who does not deadlocks."""
    two(stages)
    take("one")
    execute("INSERT INTO tidemill.stage_state VALUES ('offer', 'a', 'one', 'url', '')")
    with Session(engine()) as one, Session(engine()) as other:
        one.execute(sa.text(first))
        waits = threads.submit(_both, other, *((first, second) if lawful else (second, first)))
        wait_until(lambda: _blocked() == 1)
        try:
            one.execute(sa.text(second))
            one.commit()
            deadlocked = waits.exception(60)
        except sa.exc.OperationalError as error:
            deadlocked = error
            one.rollback()
            waits.result(60)
        assert (deadlocked is None) is lawful
        assert lawful or "deadlock detected" in str(deadlocked)


def _both(session: Session, first: str, second: str) -> None:
    session.execute(sa.text(first))
    session.execute(sa.text(second))
    session.commit()


def test_delete_and_sweep_and_the_end_of_a_visit_leave_no_guard_behind(stages: Stages) -> None:
    # S12
    two(stages)
    take("one")
    assert queue.delete("a", "offer.one") is True
    assert guards() == [("b", "one")]
    execute("DELETE FROM offer WHERE id = 'b'")
    assert guards() == []
    assert waiting() == [("a", "two")]
