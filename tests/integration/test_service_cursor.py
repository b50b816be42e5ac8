"""No committed change is ever missed, in whatever order transactions commit, and whoever follows them (T19)."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import db
from app.db import transaction
from app.stream import TransactionId
from tests.kit import reactive as kit
from tests.kit import service as services
from tests.kit.faults import pause_at
from tests.kit.reactive import ORDERS, World, day
from tests.kit.service import Clock, Follower
from tests.kit.waiting import pause, wait_until
from triggers import Delta, ctl, missed
from triggers.instants import Instant, to_instant
from triggers.model import Ctl, CtlChange, ReactiveCursor, ReactiveEvent
from triggers.service import Service, cursor

WRITERS, STEPS = 24, 12


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


@pytest.fixture
def wide(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """For as many connections as there are writers."""
    return sa.create_engine(engine.url, pool_size=WRITERS + 2)


def parameter(writer: int) -> ctl.Parameter:
    return f"w{writer}", "p"


class Write:
    """Advances its own parameter, holds its transactions open for a while, and takes some of it back."""

    def __init__(self, engine: Engine, writer: int) -> None:
        self.engine, self.name, self.random = engine, parameter(writer), random.Random(writer)

    def __call__(self) -> None:
        for step in range(STEPS):
            with Session(self.engine) as session:
                if self.random.random() < 0.3:
                    # Its number is drawn long before what it writes.
                    session.execute(sa.select(sa.func.pg_current_xact_id()))
                    self.dawdle()
                self.change(session, step)
                self.dawdle()
                session.rollback() if self.random.random() < 0.2 else session.commit()

    def change(self, session: Session, step: int) -> None:
        value = {self.name: day(step + 1)}
        match self.random.randrange(3):
            case 0:
                # `ctl` makes a savepoint in the caller's transaction.
                ctl.advance_many(value, session=session)
            case 1:
                with session.begin_nested() as undone:
                    ctl.advance_many({self.name: day(step + 1.5)}, session=session)
                    undone.rollback()
                ctl.advance_many(value, session=session)
            case _:
                plain = sa.select(sa.func.tidemill.advance(*self.name, day(step + 1)))
                session.execute(plain)

    def dawdle(self) -> None:
        pause(self.random.choice([0.0, 0.0, 0.001, 0.005, 0.03]))


def _known(found: Follower) -> dict[ctl.Parameter, Instant | None]:
    return {parameter(each): found.memory.index.current(parameter(each)) for each in range(WRITERS)}


def _stored() -> dict[ctl.Parameter, Instant]:
    with transaction() as session:
        rows = session.execute(sa.select(Ctl.entity, Ctl.parameter, Ctl.value).where(Ctl.entity != "other"))
        return {(row.entity, row.parameter): to_instant(row.value) for row in rows}


@pytest.mark.parametrize("trouble", ["none", "replaced", "frozen"])
def test_nothing_is_missed_with_many_writers(world: World, wide: Engine, trouble: str) -> None:
    # T19: with a foreign transaction that stays open, and the follower replaced in between.
    for writer in range(WRITERS):
        world.declare(f"t{writer}", Delta(*parameter(writer), "1d"))
    world.sync()
    follower = Follower()
    follower.rest()
    with wide.connect() as foreign, ThreadPoolExecutor(WRITERS) as threads:
        foreign.execute(sa.text("SELECT tidemill.advance('other', 'p', '2026-07-01Z')"))
        ends = [threads.submit(Write(wide, writer)) for writer in range(WRITERS)]
        passes, frozen = 0, Service(Clock())
        while not all(each.done() for each in ends):
            follower.once()
            passes += 1
            if trouble == "replaced" and passes % 7 == 0:
                follower.replace()
            if trouble == "frozen" and passes % 15 == 0:
                frozen, follower.service = follower.service, Service(Clock())
                follower.once()
                # It wakes up: nothing that it does counts, and the other one goes on.
                assert frozen.run_once().fenced
                assert frozen.memory is None
        for each in ends:
            each.result()
        if trouble == "none":
            # Nothing but the streams has told it, of what was moved while it looked.
            assert all(not each.fenced and not each.differences for each in follower.reports)
            assert sum(each.taken_over for each in follower.reports) == 1
        follower.rest()
        assert {name: value for name, value in _known(follower).items() if value is not None} == _stored()
        assert services.differing(follower.memory) == {}
        foreign.rollback()
    wide.dispose()
    moved = {name for name, value in _stored().items() if value}
    assert {f"{kit.MODULE}.t{name[1:]}" for name, _ in moved} == {row.task for row in kit.runs()}


def test_a_writer_that_began_before_the_service_and_ends_after_many_others(world: World, session: Session) -> None:
    # T19
    task = world.task("a", Delta(*ORDERS, "1d"))
    ctl.advance_many({ORDERS: day(1)}, session=session)
    follower = Follower()
    assert follower.rest() == 0
    for number in range(20):
        kit.advance(day(1) + timedelta(seconds=number), ("other", "p"))
        follower.once()
    assert kit.runs(task) == []
    session.commit()
    assert follower.rest() == 1


def test_what_the_service_writes_itself_is_known_to_it(world: World) -> None:
    # Its own transaction is in no list of those under way: what it wrote after its snapshot would never be new.
    task = world.task("a", Delta(*ORDERS, "1d"), first_run="baseline")
    follower = Follower()
    follower.rest()
    kit.advance(day(5))
    assert follower.rest() == 0
    assert kit.seen(task) == {ORDERS: day(5)}
    assert services.differing(follower.memory) == {}
    kit.advance(day(6))
    assert follower.rest() == 1


def _set_cursor(**values: object) -> None:
    kit.execute(sa.update(ReactiveCursor).values(**values))


@pytest.mark.parametrize("what", ["cluster", "future", "gone", "term"])
def test_a_cursor_that_cannot_be_followed_is_made_anew(world: World, what: str) -> None:
    # T19: a dump that was restored elsewhere, a clock of transactions that was set back, a cursor that is gone.
    world.task("a", Delta(*ORDERS, "1d"))
    follower = Follower()
    follower.rest()
    match what:
        case "cluster":
            _set_cursor(cluster=1)
        case "future":
            _set_cursor(snapshot="900000000:900000000:")
        case "gone":
            kit.execute(sa.delete(ReactiveCursor))
        case _:
            _set_cursor(term=ReactiveCursor.term + 1)
    kit.advance(day(1))
    assert follower.rest() == 1
    assert any(each.fenced for each in follower.reports)
    assert [each.taken_over for each in follower.reports].count(True) == 2
    assert services.differing(follower.memory) == {}


@pytest.mark.parametrize("what", ["term", "future", "gone"])
def test_an_idle_service_notices_it_too(world: World, what: str) -> None:
    # What it has in mind may be old, and no change may come that would tell.
    world.task("a", Delta(*ORDERS, "1d"))
    still = Service(lambda: 1000.0)
    assert still.run_once().taken_over
    still.run_once()
    assert still.run_once().decided == 0
    match what:
        case "term":
            _set_cursor(term=ReactiveCursor.term + 1)
        case "future":
            _set_cursor(snapshot="900000000:900000000:")
        case _:
            kit.execute(sa.delete(ReactiveCursor))
    assert still.run_once().fenced
    assert still.run_once().taken_over


def test_more_than_can_be_followed_is_read_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # T19
    monkeypatch.setattr(cursor, "LIMIT", 5)
    cursor._reading.cache_clear()
    for number in range(8):
        world.declare(f"t{number}", Delta(f"e{number}", "p", "1d"))
    world.sync()
    follower = Follower()
    follower.rest()
    ctl.advance_many({(f"e{number}", "p"): day(1) for number in range(8)})
    assert follower.rest() == 8
    assert [each.taken_over for each in follower.reports].count(True) == 2


def test_idle_passes_write_nothing(world: World) -> None:
    world.task("a", Delta(*ORDERS, "1d"))
    still = Service(lambda: 1000.0)
    still.run_once()
    still.run_once()
    before = services.cursor_row()
    for _ in range(5):
        still.run_once()
    assert services.cursor_row() == before


def test_a_leader_that_froze_within_a_pass_holds_nobody_up_and_writes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # T19: the server ends its transaction; what it wakes up to is an error, and then another's term.
    monkeypatch.setattr(cursor, "FROZEN_SECONDS", 10)
    task = world.task("a", Delta(*ORDERS, "1d"))
    frozen, errors = Follower(), list[BaseException]()
    frozen.rest()
    kit.execute(sa.text(f"ALTER DATABASE {_database()} SET idle_in_transaction_session_timeout = 0"))

    def work() -> None:
        try:
            frozen.once()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    second = Follower()

    def takes_over() -> bool:
        try:
            return second.once().taken_over
        except Exception:  # noqa: BLE001 - as the loop does: it tries again
            return False

    with pause_at("service.before_commit") as at:
        kit.advance(day(1))
        thread = threading.Thread(target=work)
        thread.start()
        at.wait()
        assert not takes_over()
        assert kit.runs(task) == []
        wait_until(takes_over, 60)
        assert second.rest() == 1
        before = services.cursor_row()
        at.go_on()
        thread.join()
    assert len(errors) == 1
    assert frozen.service.memory is None
    assert (services.cursor_row(), len(kit.runs(task))) == (before, 1)


def _database() -> str:
    return str(db.engine().url.database)


def test_the_streams_name_the_transaction_also_from_within_a_savepoint(world: World, session: Session) -> None:
    world.task("a", Delta(*ORDERS, "1d"))
    with session.begin_nested():
        ctl.advance_many({ORDERS: day(1)}, session=session)
        kit_update = sa.text("UPDATE tidemill.reactive_task SET generation = generation + 1")
        session.execute(kit_update)
    own = session.execute(sa.select(sa.cast(sa.func.pg_current_xact_id(), sa.Text))).scalar_one()
    query = "SELECT xid::text FROM tidemill.ctl_change UNION ALL SELECT xid::text FROM tidemill.reactive_event"
    found = session.execute(sa.text(query)).scalars().all()
    assert found.count(own) == 2
    assert session.execute(sa.select(ReactiveEvent.task)).scalars().all()[-1].endswith(".a")
    with transaction() as other:
        assert missed.listed(other) == []


def test_streams_that_were_restored_from_another_cluster_are_not_new_for_ever(world: World) -> None:
    """T19: their transactions have numbers that this cluster has not come to."""
    task = world.task("mart", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    follower = Follower()
    follower.rest()
    world.serve()
    follower.rest()
    for stream in (CtlChange, ReactiveEvent):
        kit.execute(sa.update(stream).values(xid=sa.cast("1000000000", TransactionId)))
    kit.execute(sa.update(ReactiveCursor).values(cluster=1))
    follower.rest()
    assert [follower.once().moved for _ in range(3)] == [0, 0, 0]
    kit.advance(day(3))
    assert follower.rest() == 1
    assert kit.states(task) == ["done", "waiting"]
