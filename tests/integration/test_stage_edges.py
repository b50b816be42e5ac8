"""What happens at the edges of visits: constraints that are checked late, entities that are deleted in the middle of a
batch, rows that one statement writes twice, strangers that hold an entry for hours, chains with pauses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from app import claims, workers
from app.claims import keeper
from app.db import engine, transaction
from app.settings import settings
from app.worker import Service
from recovery import visits as lost_visits
from stages import Patch, Untouched, Updated, queue, serving
from stages.definition import SYSTEM, queue_of
from stages.model import StageVisit
from stages.watched import kind_of, kinds
from tests.kit.database import up_for_long
from tests.kit.faults import installed
from tests.kit.stages_rows import Lot, Offer, Stages, entity, execute, visit, visits, world
from tests.kit.waiting import pause, wait_until


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def dearer(offer: Any, _state: object) -> Updated:
    offer.price = (offer.price or 0) + 1
    return Updated(offer)


def test_an_entity_that_cannot_be_loaded_fails_also_where_it_is_alone(stages: Stages) -> None:
    # S17
    def load(_offer: Offer, _context: object) -> None:
        raise LookupError("of no use")

    stages.stage("publish", max_attempts=2)
    stages.asked("a")
    sa.event.listen(Offer, "load", load)
    try:
        for _ in range(2):
            stages.all_due()
            stages.serve("publish")
    finally:
        sa.event.remove(Offer, "load", load)
    row = visit("a", "publish")
    assert (row.error, row.state, row.attempts) == ("LookupError: of no use", "parked", 2)


def test_what_takes_long_to_load_is_visited_all_the_same(stages: Stages) -> None:
    """S17: an overloaded database must not make work go round that nobody begins."""
    stages.stage("publish", does=Patch({"status": "live"}))
    stages.asked("a")

    def slow(point: str) -> None:
        if point == "visits.loaded":
            pause(keeper.REST_SECONDS + 2 * keeper.TICK_SECONDS)

    with installed(slow):
        stages.serve("publish")
    assert (stages.made, entity("a").status) == ([("publish", "a")], "live")


def test_a_constraint_that_is_checked_at_the_end_fails_that_visit_only(stages: Stages) -> None:
    # S17
    execute("CREATE TABLE known_price (price int PRIMARY KEY)")
    execute("INSERT INTO known_price VALUES (1)")
    execute("ALTER TABLE offer ADD FOREIGN KEY (price) REFERENCES known_price DEFERRABLE INITIALLY DEFERRED")
    stages.stage("publish", does=lambda offer, _state: Patch({"price": 2 if offer.id == "b" else 1}))
    stages.asked("a", "b", "c")
    stages.serve("publish")
    assert [entity(each).price for each in "abc"] == [1, None, 1]
    row = visit("b", "publish")
    assert (row.state, row.attempts) == ("waiting", 1)
    assert "offer_price_fkey" in row.error


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, BaseException])
def test_a_call_that_raises_no_exception_fails_that_visit_only(stages: Stages, error: type[BaseException]) -> None:
    """S17: its worker lives, and need not wait for the end of the lease."""

    def process(offer: Offer, _state: object) -> Untouched:
        if offer.id == "b":
            raise error
        return Untouched()

    stages.stage("publish", does=process)
    stages.asked("a", "b", "c")
    stages.serve("publish")
    (row,) = visits("publish")
    assert (row.entity_id, row.state, row.attempts) == ("b", "waiting", 1)
    assert error.__name__ in row.error


def test_an_entity_that_is_deleted_costs_the_others_of_its_batch_nothing(stages: Stages) -> None:
    # S17
    deleted = threading.Event()

    def process(offer: Offer, _state: object) -> Patch:
        if offer.id == "b" and not deleted.is_set():
            execute("DELETE FROM offer WHERE id = 'a'")
            deleted.set()
            # Until the keeper of the claim has seen it, and ends this call.
            while True:
                pause(0.01)
        return Patch({"status": "live"})

    stages.stage("publish", does=process)
    stages.asked("a", "b", "c")
    # A third of it is waited for.
    server = stages.server(lease=timedelta(seconds=30))
    server.serve(queue_of("offer", "publish"), 100)
    stages.serve("publish")
    assert [entity(each).status for each in "bc"] == ["live", "live"]
    assert visits("publish") == []


def test_what_one_statement_writes_twice_has_changed_in_all_its_fields(stages: Stages) -> None:
    # S7 S8
    execute("CREATE TABLE colour (id text PRIMARY KEY)")
    execute("INSERT INTO colour VALUES ('red'), ('blue')")
    for column in ("inside", "outside"):
        execute(f"ALTER TABLE offer ADD COLUMN {column} text REFERENCES colour ON DELETE SET NULL")
    stages.put("a")
    execute("UPDATE offer SET inside = 'red', outside = 'blue'")
    stages.forget()
    execute("DELETE FROM colour")
    assert visit("a", SYSTEM).fields == ["*"]


def test_a_pause_that_another_stage_makes_begins_a_new_chain(stages: Stages) -> None:
    # S11
    for name in ("lower", "raise"):
        stages.stage(name, does=dearer, wants=timedelta(days=1))
    stages.asked("a")
    for name in ("lower", "raise") * 3:
        stages.all_due()
        stages.serve(name)
    assert {(row.hops, row.chain) for row in visits()} == {(0, None)}


def test_a_long_chain_in_one_ticket_is_no_deep_one(stages: Stages) -> None:
    # S11
    lot = replace(kind_of(Lot), max_hops=600, mode="exclusive")
    stages.calls.all = True
    with patch.dict(kinds, lot=lot), patch.multiple(serving, QUICK_SECONDS=1e9, TICKET_SECONDS=300.0):
        for name in ("lower", "raise"):
            stages.stage(name, does=dearer, of=lot)
        stages.put("a", of=Lot)
        stages.serve(kind="lot")
    (row,) = visits()
    assert (row.state, row.hops, len(stages.made)) == ("parked", 600, 600)
    assert "in a circle" in row.error


def test_an_entry_that_a_stranger_holds_does_not_keep_the_low_lane_waiting(stages: Stages) -> None:
    # S16
    stages.calls.all = True
    stages.stage("publish")
    stages.put("a", "b")
    stages.forget()
    queue.offer("a", "offer.publish")
    queue.offer("b", "offer.publish", low=True)
    with engine().connect() as stranger, stranger.begin():
        stranger.execute(sa.text("SELECT FROM tidemill.stage_visit WHERE entity_id = 'a' FOR UPDATE"))
        stages.serve("publish", low=True)
        assert stages.made_by("publish") == ["b"]


def test_the_dead_are_mourned_without_waiting_for_strangers(stages: Stages) -> None:
    # S17
    for each in ("publish", "price"):
        stages.stage(each)
    stages.asked("a", "b")
    cursor = claims.Cursor(StageVisit, queue_of("offer", "publish"), guarded=True)
    assert len(claims.take(cursor, 3, worker="w/dead", lease=timedelta(minutes=1)).rows) == 2
    with engine().connect() as stranger, stranger.begin():
        stranger.execute(sa.text("DELETE FROM offer WHERE id = 'a'"))
        with transaction() as session:
            session.execute(sa.text("SET LOCAL lock_timeout = '100ms'"))
            assert claims.orphan(session, StageVisit, ["w/dead"]) == 1
    assert [
        (row.entity_id, row.recovery_time < row.claimed_at + timedelta(minutes=1)) for row in visits("publish")
    ] == [("b", True)]


def test_a_sweep_takes_no_guard_of_the_dead_for_a_sign_of_life(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    # S12 R1: it comes while the parent of the worker is mourning it.
    stages.stage("publish")
    stages.asked("a")
    monkeypatch.setenv("TIDEMILL_LEASE", "1s")
    settings.cache_clear()
    up_for_long(engine())
    cursor = claims.Cursor(StageVisit, queue_of("offer", "publish"), guarded=True)
    dead = workers.child_name("w@here", 99_999)
    assert len(claims.take(cursor, 1, worker=dead, lease=timedelta(minutes=10)).rows) == 1
    abandon, swept = StageVisit.abandon, []

    def abandoned(executor: Any, passes: Any) -> None:
        swept.append(lost_visits.run_once().lost)
        abandon(executor, passes)

    monkeypatch.setattr(StageVisit, "abandon", abandoned)
    parent = SimpleNamespace(hostname="w@here", pool=SimpleNamespace(_pool=SimpleNamespace(_pool=[])))
    service = Service.__new__(Service)
    service._alive = {99_999}
    service._mourn(parent)
    assert (swept, lost_visits.run_once().lost) == ([0], 1)
    assert visit("a", "publish").state == "waiting"
    assert execute("SELECT FROM tidemill.entity_guard") == []


def test_who_waits_for_the_limits_of_a_queue_has_the_whole_lease(stages: Stages) -> None:
    # S12 S15
    left: list[timedelta] = []

    def process(*_: Any) -> Untouched:
        rows = execute(
            "SELECT recovery_time - claimed_at FROM tidemill.stage_visit WHERE stage = 'publish' UNION ALL "
            "SELECT until - claimed_at FROM tidemill.entity_guard JOIN tidemill.stage_visit USING (pass_key) UNION ALL "
            "SELECT claimed_at - CAST(:since AS timestamptz) FROM tidemill.stage_visit WHERE stage = 'publish'",
            since=released[0],
        )
        left.extend(row[0] for row in rows)
        return Untouched()

    released: list[Any] = []
    stages.stage("publish", max_parallel=2, does=process)
    stages.sync()
    stages.asked("a")
    with engine().connect() as stranger:
        begun = stranger.begin()
        stranger.execute(sa.text("SELECT FROM tidemill.queue WHERE name = 'stage.offer.publish' FOR UPDATE"))
        worker = threading.Thread(target=_let_go, args=(stranger, begun, released))
        worker.start()
        stages.serve("publish")
        worker.join()
    assert left[:2] == [timedelta(minutes=1)] * 2
    assert left[2] > timedelta(0)


def _let_go(stranger: Any, begun: Any, released: list[Any]) -> None:
    """When somebody waits for it."""
    waits = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    wait_until(lambda: bool(execute(waits)))
    released.append(stranger.execute(sa.text("SELECT clock_timestamp()")).scalar_one())
    begun.rollback()


DERIVING = """
    CREATE FUNCTION public.derive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        new.note := to_jsonb(new.price * 2);
        new.touched := clock_timestamp();
        RETURN new;
    END $$
"""


def test_stages_are_asked_about_what_the_table_derives_from_a_save(stages: Stages) -> None:
    # S7 S8
    execute("ALTER TABLE offer ADD COLUMN touched timestamptz")
    execute(DERIVING)
    execute("CREATE TRIGGER derive BEFORE UPDATE ON offer FOR EACH ROW EXECUTE FUNCTION public.derive()")
    try:
        stages.stage("reprice", does=Patch({"price": 3}), wants=True, watches={"status"})
        stages.stage("annotate", wants=lambda offer, _state: offer.note == 6, watches={"note"})
        stages.stage("label", wants=True, watches={"status"})
        stages.sync()
        stages.asked("a", "b")
        stages.serve("annotate")
        stages.serve("label")
        stages.serve("reprice")
        system = visits(SYSTEM)
        assert [(row.entity_id, row.fields) for row in system] == [("a", ["note"]), ("b", ["note"])]
        stages.serve()
        assert {row.entity_id for row in visits("annotate")} == {"a", "b"}
        assert [visits(name) for name in ("label", "reprice")] == [[], []]
    finally:
        execute("DROP FUNCTION public.derive() CASCADE")


def test_what_nobody_watches_may_be_derived_for_nothing(stages: Stages) -> None:
    # S8: a time of change, kept by a trigger, is in many a table.
    execute("ALTER TABLE offer ADD COLUMN touched timestamptz")
    execute(DERIVING)
    execute("CREATE TRIGGER derive BEFORE UPDATE ON offer FOR EACH ROW EXECUTE FUNCTION public.derive()")
    try:
        stages.stage("reprice", does=Patch({"price": 3}), wants=True, watches={"status"})
        stages.stage("any", wants=False)
        stages.sync()
        stages.asked("a")
        stages.serve("reprice")
        assert (entity("a").note, visits()) == (6, [])
    finally:
        execute("DROP FUNCTION public.derive() CASCADE")


def test_what_comes_of_a_visit_of_the_low_lane_stays_there(stages: Stages) -> None:
    # S16
    stages.stage("first", does=Patch({"status": "seen"}), wants=False)
    stages.stage("second", wants=True, watches={"status"})
    stages.asked("a", "b")
    stages.forget()
    queue.offer("a", "offer.first", low=True)
    queue.offer("b", "offer.first")
    stages.serve("first", low=True)
    stages.serve("first")
    lanes = {row.entity_id: (row.due_at is None, row.low_at is None) for row in visits("second")}
    assert lanes == {"a": (True, False), "b": (False, True)}
    assert stages.serve("second", low=True) == 1
