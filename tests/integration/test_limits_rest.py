"""A queue that rests: nothing is claimed for a while, then one row at a time until a trial goes well (S18)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import claims, dispatch, limits
from app.claims import Claim
from app.db import transaction
from app.limits import Queue
from app.registry import Waiting
from tests.kit.tables import Table

QUEUE = "check"


def rest(session: Session, why: str = "the service is away") -> float:
    left = limits.rest(session, QUEUE, why)
    session.commit()
    return left.total_seconds()


def rested(session: Session) -> None:
    """As if the pause were over."""
    session.execute(sa.update(Queue).values(rests_until=sa.func.now()))
    session.commit()


def row(session: Session) -> Any:
    session.rollback()
    return session.execute(sa.select(Queue.rests_why, Queue.rests, Queue.rests_until).where(Queue.name == QUEUE)).one()


def fill(table: Table, session: Session, count: int) -> None:
    for number in range(count):
        table.put(session, number, age=1000 - number)
    session.commit()


def end(table: Table, claim: Claim) -> None:
    with transaction() as tx:
        claims.finish(tx, table.model, claim.pass_key, table.taken(claim))


def test_pauses_double_up_to_the_longest(session: Session) -> None:
    found = []
    for _ in range(9):
        found.append(rest(session))
        rested(session)
    # What is left of it when the statement ends.
    assert all(most / 2 < left <= most for left, most in zip(found, [0.5, 1, 2, 4, 8, 16, 30, 30, 30], strict=True)), (
        found
    )


def test_several_that_find_it_out_at_once_count_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the machine is, they come within the first pause.
    monkeypatch.setattr(limits, "REST", limits.REST_MOST)
    for _ in range(3):
        assert rest(session) <= limits.REST_MOST.total_seconds()
    assert row(session).rests == 1


def test_after_it_was_awake_pauses_begin_anew(session: Session) -> None:
    rest(session)
    rested(session)
    rest(session)
    limits.awake(session, QUEUE)
    session.commit()
    assert tuple(row(session)) == (None, 0, None)
    assert rest(session) <= 0.5


def test_a_reason_of_any_length(session: Session) -> None:
    rest(session, "x" * 10_000)
    assert len(row(session).rests_why) == limits.WHY_MOST


def test_nothing_is_claimed_while_it_rests(table: Table, session: Session) -> None:
    fill(table, session, 5)
    cursor = table.cursor()
    end(table, table.take(1, cursor))
    rest(session)
    limits.configure(session, QUEUE)
    session.execute(sa.update(Queue).values(rests_until=sa.func.now() + timedelta(seconds=25)))
    session.commit()
    assert table.take(3, cursor).rows == ()
    assert table.take(3).rows == (), "nor by a process that has just come"


def test_a_trial_is_one_row_and_one_at_a_time(table: Table, session: Session) -> None:
    fill(table, session, 5)
    rest(session)
    rested(session)
    first, second = table.cursor(), table.cursor()
    trial = table.take(3, first)
    assert (len(trial.rows), trial.trial) == (1, True)
    assert table.take(3, second).rows == ()
    end(table, trial)
    assert len(table.take(3, second).rows) == 1
    with transaction() as tx:
        limits.awake(tx, QUEUE)
    claim = table.take(3, first)
    assert (len(claim.rows), claim.trial) == (3, False)
    assert first.limited is False, "it costs nothing any more"


def test_two_claimers_never_hold_two_trials(table: Table, session: Session) -> None:
    fill(table, session, 30)
    rest(session)
    rested(session)
    live, peak, guard, start = 0, 0, threading.Lock(), threading.Barrier(2)

    def work(_: int) -> int:
        nonlocal live, peak
        cursor, done = table.cursor(), 0
        start.wait()
        for _ in range(300):
            claim = table.take(10, cursor)
            if not claim.rows:
                continue
            with guard:
                live, peak = live + 1, max(peak, live + 1)
            done += len(claim.rows)
            with guard:
                live -= 1
            end(table, claim)
            if done + 1 > 15:
                break
        return done

    with ThreadPoolExecutor(2) as threads:
        assert sum(threads.map(work, range(2))) == 30
    assert peak == 1


def test_other_limits_hold_in_a_trial(table: Table, session: Session) -> None:
    # S15
    fill(table, session, 3)
    limits.configure(session, QUEUE, rate="1/s", max_parallel=5)
    rest(session)
    rested(session)
    assert len(table.take(3).rows) == 1
    limits.configure(session, QUEUE, paused=True)
    session.commit()
    assert table.take(3).rows == ()


def test_nobody_rings_for_a_queue_that_rests(table: Table, session: Session) -> None:
    fill(table, session, 3)
    rest(session)
    session.execute(sa.update(Queue).values(rests_until=sa.func.now() + timedelta(seconds=25)))
    session.commit()
    waiting = Waiting(table.model)
    assert [each.free for each in dispatch.find_ready(session, waiting)] == [0]
    rested(session)
    assert [each.free for each in dispatch.find_ready(session, waiting)] == [1]
    table.take(1)
    session.rollback()
    assert [each.free for each in dispatch.find_ready(session, waiting)] == [0]
    limits.awake(session, QUEUE)
    session.commit()
    assert dispatch.find_ready(session, waiting)[0].free > 1


def test_who_opens_a_queue_that_rests_tries_at_once(table: Table, session: Session) -> None:
    fill(table, session, 3)
    rest(session)
    session.execute(sa.update(Queue).values(rests_until=sa.func.now() + timedelta(seconds=25)))
    limits.configure(session, QUEUE, paused=False)
    session.commit()
    assert len(table.take(3).rows) == 1


def test_a_clock_that_was_set_back_does_not_prolong_a_rest(session: Session) -> None:
    with transaction() as tx:
        limits.rest(tx, "far", "away")
    session.execute(sa.update(Queue).values(rests_until=sa.func.now() + timedelta(hours=2)))
    session.commit()
    with transaction() as tx:
        found = limits.lock(tx, "far")
    assert (found.rests, found.trial) == (False, True)
