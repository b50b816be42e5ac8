"""Claims: taking work, best first, by one worker only (J2)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.claims import Cursor, Key, Lane, among
from app.jobs.model import Job
from app.limits import configure
from tests.kit.clock import FakeClock
from tests.kit.faults import pause_at
from tests.kit.tables import LEASE, Table


def test_the_oldest_is_taken_first(table: Table, session: Session) -> None:
    # J2
    keys = [table.put(session, number, age=age) for number, age in ((1, 10), (2, 30), (3, 20))]
    claim = table.take(10)
    assert table.taken(claim) == [keys[1], keys[2], keys[0]]
    assert len({row.pass_key for row in claim.rows}) == 1
    assert {row.attempts for row in claim.rows} == {1}
    assert {(row.state, row.claimed_by) for row in claim.rows} == {("running", "w/1")}
    assert {row.recovery_time - row.claimed_at for row in claim.rows} == {LEASE}


def test_rows_due_at_the_same_time_are_taken_in_the_order_of_their_keys(table: Table, session: Session) -> None:
    due = sa.text("'2026-01-01'::timestamptz")
    keys = [table.put(session, number, due_at=due) for number in (3, 1, 2)]
    assert table.taken(table.take(10)) == sorted(keys)


def test_the_higher_priority_goes_first_and_the_oldest_within_it(jobs: Table, session: Session) -> None:
    # J2
    put = [(1, 0, 50), (2, -5, 10), (3, 7, 90), (4, -5, 20)]
    keys = {number: jobs.put(session, number, age=age, rank=rank) for number, rank, age in put}
    assert jobs.taken(jobs.take(3)) == [keys[4], keys[2], keys[1]]
    assert jobs.taken(jobs.take(3)) == [keys[3]]


def test_a_rank_that_comes_into_use_is_seen_by_a_cursor_that_did_not_know_it(jobs: Table, session: Session) -> None:
    cursor = jobs.cursor()
    for number in (1, 2):
        jobs.put(session, number, age=10)
    assert jobs.taken(jobs.take(1, cursor)) == [(1,)]
    jobs.put(session, 3, rank=-100)
    jobs.put(session, 4, rank=32767)
    jobs.put(session, 5, rank=-32767)
    assert [jobs.taken(jobs.take(1, cursor))[0][0] for _ in range(4)] == [5, 3, 2, 4]


def test_a_table_without_ranks_ignores_them(visits: Table, session: Session) -> None:
    first = visits.put(session, 1, age=20, rank=9)
    second = visits.put(session, 2, age=10, rank=-9)
    assert visits.taken(visits.take(5)) == [first, second]


@pytest.mark.parametrize("want", [1, 2, 4, 7, 50, 500])
def test_a_claim_takes_no_more_than_wanted_and_leaves_the_rest(table: Table, session: Session, want: int) -> None:
    for number in range(60):
        table.put(session, number, age=60 - number)
    claim = table.take(want)
    assert 1 <= len(claim.rows) <= want
    assert table.taken(claim) == [table.key(number) for number in range(len(claim.rows))]
    running = sa.select(sa.func.count()).where(table.model.pass_key.is_not(None))
    assert session.execute(running).scalar_one() == len(claim.rows)


def test_a_row_is_not_taken_before_its_time(table: Table, session: Session) -> None:
    # J1 eta
    later = table.put(session, 1, age=-3600)
    backoff = table.put(session, 2, age=50, not_before=sa.func.now() + timedelta(hours=1))
    over = table.put(session, 3, age=-0.001, not_before=sa.func.now() - timedelta(seconds=5))
    assert table.taken(table.take(10)) == [over]
    assert {table.state(session, later), table.state(session, backoff)} == {"waiting"}


def test_a_row_whose_backoff_ended_is_ordered_by_that_time(table: Table, session: Session) -> None:
    first = table.put(session, 1, age=100, not_before=sa.func.now() - timedelta(seconds=1))
    second = table.put(session, 2, age=50)
    assert table.taken(table.take(10)) == [second, first]


def test_queues_do_not_mix(table: Table, session: Session) -> None:
    table.put(session, 1, queue="other")
    mine = table.put(session, 2)
    assert table.taken(table.take(10)) == [mine]
    assert table.take(10).rows == ()


def test_what_runs_or_is_parked_is_not_taken(table: Table, session: Session) -> None:
    key = table.put(session, 1)
    table.put(session, 2, state="parked")
    assert table.taken(table.take(10)) == [key]
    assert table.take(10).rows == ()


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_connections_one_takes_the_row(table: Table, session: Session, engine: Engine, first: int) -> None:
    # J2: whoever comes second passes over what the first has locked, and does not wait for it.
    keys = [table.put(session, 1, age=20), table.put(session, 2, age=10)]
    with engine.connect() as other, other.begin():
        held = sa.select(table.model.pass_key).where(among(table.model, [keys[first]]))
        assert len(other.execute(held.with_for_update()).all()) == 1
        assert table.taken(table.take(10)) == [keys[1 - first]]
    assert table.taken(table.take(10)) == [keys[first]]


def test_four_threads_take_each_row_once(table: Table, session: Session) -> None:
    # J2
    for number in range(200):
        table.put(session, number, age=300 - number)
    start = threading.Barrier(4)

    def work(_: int) -> list[Key]:
        cursor, found = table.cursor(), list[Key]()
        start.wait()
        while rows := table.taken(table.take(7, cursor)):
            found += rows
        return found

    with ThreadPoolExecutor(4) as threads:
        found = [key for part in threads.map(work, range(4)) for key in part]
    assert sorted(found) == [table.key(number) for number in range(200)]


def test_a_claim_has_committed_before_the_work_begins(table: Table, session: Session) -> None:
    # J2: taking is a transaction of its own.
    key = table.put(session, 1)
    with pause_at("claim.committed") as paused, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(table.take)
        paused.wait()
        assert table.state(session, key) == "running"
        paused.go_on()
        assert table.taken(taking.result(60)) == [key]


def test_each_lane_gives_its_own(visits: Table, session: Session) -> None:
    # S16: what waits in the low lane never lands in the main lane, also with a timer armed there.
    main = visits.put(session, 1, age=10)
    low = visits.put(session, 2, due_at=None, low_at=sa.func.now())
    armed = visits.put(session, 3, age=-3600, low_at=sa.func.now())
    assert visits.taken(visits.take(10)) == [main]
    assert sorted(visits.taken(visits.take(10, lane=Lane.LOW))) == [low, armed]
    assert visits.take(10).rows == ()


def test_jobs_have_no_low_lane(jobs: Table, session: Session) -> None:
    with pytest.raises(ValueError, match="Job has no lane low"):
        jobs.take(lane=Lane.LOW)


def test_a_row_that_must_be_alone_is_taken_alone(table: Table, session: Session) -> None:
    # S17
    keys = [table.put(session, number, age=50 - number, alone=number in (0, 3)) for number in range(5)]
    cursor = table.cursor()
    assert table.taken(table.take(10, cursor)) == [keys[0]]
    assert table.taken(table.take(10, cursor)) == [keys[1], keys[2], keys[4]]
    assert table.taken(table.take(10, cursor)) == [keys[3]]
    assert table.taken(table.take(10, cursor)) == []


def test_a_row_behind_the_cursor_is_found(table: Table, session: Session) -> None:
    for number in range(10, 30):
        table.put(session, number, age=100 - number)
    clock = FakeClock()
    cursor = Cursor(table.model, "check", monotonic=clock.monotonic)
    table.take(3, cursor)
    table.take(3, cursor)
    behind = table.put(session, 1, age=1000)
    clock.advance(1.01)
    seen = [key for _ in range(3) for key in table.taken(table.take(3, cursor))]
    assert behind in seen, "within a second, and the claim after it"


def test_a_short_batch_sends_the_cursor_back(table: Table, session: Session) -> None:
    cursor = Cursor(table.model, "check", monotonic=FakeClock().monotonic)
    table.put(session, 5, age=10)
    assert len(table.take(3, cursor).rows) == 1
    behind = table.put(session, 1, age=1000)
    assert table.taken(table.take(3, cursor)) == [behind]


def test_a_paused_queue_gives_nothing_until_it_goes_on(table: Table, session: Session) -> None:
    # S15
    key = table.put(session, 1)
    cursor = table.cursor()
    for paused, expected in ((True, []), (True, []), (False, [key])):
        configure(session, "check", paused=paused)
        session.commit()
        claim = table.take(5, cursor)
        assert (table.taken(claim), claim.paused) == (expected, paused)


def test_a_row_that_is_tried_for_ever_does_not_stop_the_queue(table: Table, session: Session) -> None:
    keys = [table.put(session, 1, age=9, attempts=32767), table.put(session, 2)]
    claim = table.take(5)
    assert table.taken(claim) == keys
    assert [row.attempts for row in claim.rows] == [32767, 1]


def test_the_database_keeps_pass_and_state_together(jobs: Table, session: Session) -> None:
    jobs.put(session, 1)
    for values in ({"state": "running"}, {"pass_key": sa.func.gen_random_uuid()}, {"recovery_time": sa.func.now()}):
        with pytest.raises(sa.exc.IntegrityError, match="job_claimed_exactly_while_running"):
            session.execute(sa.update(Job).values(values))
        session.rollback()
