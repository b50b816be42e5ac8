"""Limits of a queue hold for the whole cluster, exactly (S15), and cost nothing where there are none."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import claims
from app.db import transaction
from app.errors import BadRequest
from app.limits import Queue, configure
from tests.kit.tables import Table
from tests.kit.waiting import pause


def limit(session: Session, **limits: Any) -> None:
    configure(session, "check", **limits)
    session.commit()


def fill(table: Table, session: Session, count: int) -> None:
    for number in range(count):
        table.put(session, number, age=1000 - number)


@pytest.mark.parametrize("batch", [1, 5])
def test_never_more_claims_live_than_max_parallel(table: Table, session: Session, batch: int) -> None:
    # S15: four threads, three may run.
    fill(table, session, 60)
    limit(session, max_parallel=3)
    live, peak, guard, start = 0, 0, threading.Lock(), threading.Barrier(4)

    def work(_: int) -> int:
        nonlocal live, peak
        cursor, done = table.cursor(), 0
        start.wait()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            claim = table.take(batch, cursor)
            if not claim.rows:
                with transaction() as tx:
                    if not tx.execute(sa.select(sa.func.count()).where(table.model.state == "waiting")).scalar_one():
                        return done
                continue
            with guard:
                live += 1
                peak = max(peak, live)
            pause(0.002)
            with guard:
                live -= 1
            with transaction() as tx:
                done += len(claims.finish(tx, table.model, claim.pass_key, table.taken(claim)))
        return done

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 60
    assert peak <= 3


def test_as_many_claims_as_max_parallel_says(table: Table, session: Session) -> None:
    fill(table, session, 10)
    limit(session, max_parallel=3)
    assert [len(table.take(1).rows) for _ in range(5)] == [1, 1, 1, 0, 0]


def test_a_batch_is_one_call_at_a_time(table: Table, session: Session) -> None:
    # S15
    fill(table, session, 6)
    limit(session, max_parallel=1)
    claim = table.take(3)
    assert len(claim.rows) == 3
    assert table.take(3).rows == ()
    with transaction() as tx:
        claims.finish(tx, table.model, claim.pass_key, table.taken(claim)[:2])
    assert table.take(3).rows == (), "the last of the batch still runs"
    with transaction() as tx:
        claims.give_back(tx, table.model, claim.pass_key, table.taken(claim)[2:], charged=True)
    assert len(table.take(3).rows) == 3


def test_calls_never_exceed_burst_and_rate(table: Table, session: Session) -> None:
    # S15: by the moments at which the calls may begin, over every window.
    rate, burst = 40.0, 3.0
    fill(table, session, 200)
    limit(session, rate="40/s", burst=burst)
    #: Of each call, between which two moments it may begin.
    begun: list[tuple[float, float]] = []
    guard = threading.Lock()
    end = time.monotonic() + 60

    def work(_: int) -> None:
        cursor = table.cursor()
        while len(begun) < 60 and time.monotonic() < end:
            before = time.monotonic()
            claim = table.take(8, cursor)
            after = time.monotonic()
            assert len(claim.pace) == len(claim.rows)
            with guard:
                begun.extend((before + at, after + at) for at in claim.pace)
            pause(0.01)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, range(2)))
    assert len(begun) >= 60, "and the rate is used"
    begun.sort()
    for i, (earliest, _) in enumerate(begun):
        for j in range(i, len(begun)):
            latest = max(late for _, late in begun[i : j + 1])
            assert j - i + 1 <= burst + rate * (latest - earliest) + 1e-3


def test_retries_count_against_the_rate(table: Table, session: Session) -> None:
    # S15
    fill(table, session, 1)
    limit(session, rate="1/min", burst=2)
    session.execute(sa.update(Queue).values(tokens=2))
    session.commit()
    for expected in (1, 1, 0):
        claim = table.take(1)
        assert len(claim.rows) == expected
        with transaction() as tx:
            claims.give_back(tx, table.model, claim.pass_key, table.taken(claim), charged=True)


def test_limits_change_at_run_time(table: Table, session: Session) -> None:
    # S15: with the next claim of a cursor that knew other limits.
    fill(table, session, 40)
    cursor = table.cursor()
    assert len(table.take(3, cursor).rows) == 3
    limit(session, max_parallel=2)
    assert len(table.take(3, cursor).rows) == 3, "one claim ran: a second may"
    assert table.take(3, cursor).rows == ()
    limit(session, max_parallel=3)
    assert len(table.take(3, cursor).rows) == 3
    limit(session, max_parallel=None, rate="1/h")
    assert [len(table.take(2, cursor).rows) for _ in range(2)] == [1, 0]
    limit(session, rate=None, paused=True)
    assert table.take(2, cursor).paused
    limit(session, paused=False)
    assert len(table.take(10, cursor).rows) == 10
    assert not cursor.limited, "and from now on without the lock"


def test_a_queue_without_limits_takes_no_lock(table: Table, session: Session, engine: Engine) -> None:
    # Somebody holds the row of the queue, and the claim does not wait.
    fill(table, session, 3)
    limit(session)
    with engine.connect() as other, other.begin():
        other.execute(sa.select(Queue).where(Queue.name == "check").with_for_update())
        with ThreadPoolExecutor(1) as threads:
            claim = threads.submit(table.take, 3).result(60)
    assert len(claim.rows) == 3


def test_a_queue_with_limits_is_decided_under_its_lock(table: Table, session: Session, engine: Engine) -> None:
    fill(table, session, 3)
    limit(session, max_parallel=5)
    with ThreadPoolExecutor(1) as threads, engine.connect() as other:
        with other.begin():
            other.execute(sa.select(Queue).where(Queue.name == "check").with_for_update())
            claim = threads.submit(table.take, 3)
            with pytest.raises(TimeoutError):
                claim.result(0.2)
        assert len(claim.result(60).rows) == 3


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_parallel": 0}, "max_parallel=0 must be 1 or more"),
        ({"max_parallel": 2**31}, "must be 1 or more"),
        ({"rate": "fast"}, "'fast' is not a rate"),
        ({"rate": "0/s"}, "is not a rate"),
        ({"burst": 0.5}, "burst=0.5 must be 1 or more"),
        ({"burst": float("nan")}, "burst=nan must be"),
        ({"burst": float("inf")}, "burst=inf must be"),
    ],
)
def test_wrong_limits_are_refused(session: Session, limits: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        limit(session, **limits)
    session.rollback()
    assert session.execute(sa.select(Queue)).all() == []


def test_what_is_left_out_stays(session: Session) -> None:
    limit(session, max_parallel=4, rate="6/min", burst=3, paused=True)
    limit(session, paused=False)
    queue = session.execute(sa.select(Queue)).scalar_one()
    assert (queue.max_parallel, queue.rate, queue.burst, queue.paused) == (4, 0.1, 3.0, False)


@pytest.mark.parametrize("values", [{"max_parallel": 0}, {"rate": 0}, {"rate": -1}, {"burst": 0.5}])
def test_the_database_refuses_wrong_limits(session: Session, values: dict[str, float]) -> None:
    with pytest.raises(sa.exc.IntegrityError, match=r"queue_\w+"):
        session.execute(sa.insert(Queue).values(name="q", **values))


def test_the_next_claim_after_a_break_is_not_punished_for_it(table: Table, session: Session) -> None:
    # A worker whose clock is behind, or a queue that was idle for long: the bucket holds the burst, no more.
    fill(table, session, 20)
    limit(session, rate="2/s", burst=8)
    session.execute(sa.update(Queue).values(tokens=-2, refilled_at=sa.func.now() - timedelta(days=3)))
    session.commit()
    assert len(table.take(30).rows) == 8 + 2, "burst, and what may be called within a second"
