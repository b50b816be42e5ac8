"""Claims: keeping, ending, giving back; what comes late matches nothing (J3)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import claims
from app.claims import Claimable, Key, Lane, PassKey
from app.db import transaction
from tests.kit import visit
from tests.kit.tables import Table

HOUR = timedelta(hours=1)
Ending = Callable[[Session, type[Claimable], PassKey, list[Key]], set[Key]]
ENDINGS: dict[str, Ending] = {
    "extend": lambda tx, model, pass_key, keys: claims.extend(tx, model, pass_key, keys, HOUR),
    "finish": lambda tx, model, pass_key, keys: {
        claims.key_of(model, r) for r in claims.finish(tx, model, pass_key, keys)
    },
    "give_back": lambda tx, model, pass_key, keys: claims.give_back(tx, model, pass_key, keys, charged=True),
    "park": claims.park,
}


def do(what: str, table: Table, pass_key: uuid.UUID, keys: list[Key]) -> set[Key]:
    with transaction() as tx:
        return ENDINGS[what](tx, table.model, PassKey(pass_key), keys)


@pytest.mark.parametrize("what", ENDINGS)
def test_whoever_holds_the_claim_may(what: str, table: Table, session: Session) -> None:
    keys = [table.put(session, number, age=9 - number) for number in range(4)]
    claim = table.take(3)
    assert do(what, table, claim.pass_key, keys[:2]) == set(keys[:2])
    expected = {"extend": "running", "finish": None, "give_back": "waiting", "park": "parked"}[what]
    assert [table.state(session, key) for key in keys] == [expected, expected, "running", "waiting"]


@pytest.mark.parametrize("what", ENDINGS)
def test_a_late_pass_matches_nothing(what: str, table: Table, session: Session) -> None:
    # J3: the late worker learns that it lost, and the newer claim is untouched.
    key = table.put(session, 1)
    late = table.take(lease=timedelta(seconds=-1)).pass_key
    table.sweep()
    session.execute(sa.update(table.model).values(not_before=None))
    session.commit()
    table.take()
    before = table.row(session, key)
    assert do(what, table, late, [key]) == set()
    assert do(what, table, uuid.uuid4(), [key]) == set()
    assert table.row(session, key) == before


@pytest.mark.parametrize("what", ENDINGS)
def test_after_the_end_there_is_nothing_to_hold(what: str, table: Table, session: Session) -> None:
    key = table.put(session, 1)
    claim = table.take()
    do("finish", table, claim.pass_key, [key])
    assert do(what, table, claim.pass_key, [key]) == set()


@pytest.mark.parametrize("first", ["sweep", "finish"])
def test_a_sweep_and_a_late_end_do_not_both_win(table: Table, session: Session, engine: Engine, first: str) -> None:
    # Two connections, both orders.
    key = table.put(session, 1)
    claim = table.take(lease=timedelta(seconds=-1))
    with transaction() as one:
        if first == "sweep":
            rows = claims.overdue(one, table.model, 10, timedelta(0))
            claims.time_out(one, table.model, rows)
        else:
            claims.finish(one, table.model, claim.pass_key, [key])
            assert table.sweep() == {}, "passes over what is locked"
    if first == "sweep":
        assert do("finish", table, claim.pass_key, [key]) == set()
        assert table.state(session, key) == "waiting"
    else:
        assert table.sweep() == {}
        assert table.row(session, key) is None


def test_extending_moves_only_the_deadline(table: Table, session: Session) -> None:
    key = table.put(session, 1)
    claim = table.take()
    do("extend", table, claim.pass_key, [key])
    row = table.row(session, key)
    assert row.recovery_time > claim.rows[0].recovery_time + timedelta(minutes=58)
    assert (row.pass_key, row.attempts, row.claimed_at) == (claim.pass_key, 1, claim.rows[0].claimed_at)


@pytest.mark.parametrize(("charged", "attempts"), [(True, 1), (False, 0)])
def test_giving_back_charges_an_attempt_or_not(table: Table, session: Session, charged: bool, attempts: int) -> None:  # noqa: FBT001
    key = table.put(session, 1)
    claim = table.take()
    with transaction() as tx:
        claims.give_back(tx, table.model, claim.pass_key, [key], charged=charged)
    row = table.row(session, key)
    assert (row.attempts, row.pass_key, row.recovery_time) == (attempts, None, None)
    assert table.taken(table.take()) == [key], "at once"


def test_giving_back_with_a_delay_backs_off(table: Table, session: Session) -> None:
    key = table.put(session, 1)
    claim = table.take()
    with transaction() as tx:
        claims.give_back(tx, table.model, claim.pass_key, [key], charged=True, delay=HOUR, alone=True)
    row = table.row(session, key)
    assert row.alone
    assert table.take().rows == ()
    assert row.not_before - row.claimed_at >= HOUR


# A batch that lost its worker.


def test_what_died_in_a_batch_goes_back_uncharged_to_be_taken_alone(table: Table, session: Session) -> None:
    # S17
    keys = [table.put(session, number, age=9 - number) for number in range(3)]
    table.take(3, lease=timedelta(seconds=-1))
    assert table.sweep() == dict.fromkeys(keys, "waiting")
    rows = [table.row(session, key) for key in keys]
    assert {(row.attempts, row.alone, row.pass_key, row.not_before) for row in rows} == {(0, True, None, None)}
    assert [table.taken(table.take(3)) for _ in keys] == [[key] for key in keys]


def test_what_died_alone_is_charged_and_backs_off(table: Table, session: Session) -> None:
    # S17
    key = table.put(session, 1)
    waits = []
    for attempt in (1, 2):
        table.take(lease=timedelta(seconds=-1))
        assert table.sweep() == {key: "waiting"}
        row = table.row(session, key)
        assert row.attempts == attempt
        waits.append(round((row.not_before - row.claimed_at).total_seconds()))
        session.execute(sa.update(table.model).values(not_before=None))
        session.commit()
    assert waits == [1, 2]


def test_the_last_of_a_batch_that_still_ran_died_alone(table: Table, session: Session) -> None:
    # S17: the others had ended, so there is nobody else to blame.
    keys = [table.put(session, number, age=9 - number) for number in range(3)]
    claim = table.take(3, lease=timedelta(seconds=-1))
    do("finish", table, claim.pass_key, keys[:2])
    table.sweep()
    row = table.row(session, keys[2])
    assert (row.attempts, row.alone) == (1, False)


def test_what_died_alone_too_often_is_parked(table: Table, session: Session) -> None:
    # S17
    more: dict[str, Any] = {"max_attempts": 3} if table.name == "job" else {}
    key = table.put(session, 1, **more)
    for expected in ("waiting", "waiting", "parked"):
        table.take(lease=timedelta(seconds=-1))
        assert table.sweep() == {key: expected}
        session.execute(sa.update(table.model).values(not_before=None))
        session.commit()
    assert table.row(session, key).attempts == 3
    assert table.take().rows == ()


def test_only_what_is_overdue_is_swept_and_within_the_limit(table: Table, session: Session) -> None:
    # R1
    for number, queue in ((1, "a"), (2, "b"), (3, "a"), (4, "c")):
        table.put(session, number, queue=queue, age=9 - number)
        table.take(queue=queue, lease=timedelta(seconds=-10 + number if number < 4 else 60))
    swept = table.sweep(2)
    assert len(swept) == 2
    assert set(swept) | set(table.sweep(2)) == {table.key(1, "a"), table.key(2, "b"), table.key(3, "a")}


def test_after_a_start_of_the_server_sweeps_wait_one_lease(table: Table, session: Session) -> None:
    # R6: live work reports first.
    key = table.put(session, 1)
    table.take(lease=timedelta(seconds=-1))
    with transaction() as tx:
        assert claims.overdue(tx, table.model, 10, timedelta(days=1)) == []
    assert table.sweep() == {key: "waiting"}


def test_two_sweeps_share_the_work(table: Table, session: Session) -> None:
    # R1: any number may run at once.
    for number in range(4):
        table.put(session, number, age=9 - number)
        table.take(lease=timedelta(seconds=-1))
    with transaction() as one:
        first = claims.overdue(one, table.model, 2, timedelta(0))
        with transaction() as two:
            second = claims.overdue(two, table.model, 10, timedelta(0))
        assert len(first) == len(second) == 2
        assert {row.pass_key for row in first}.isdisjoint(row.pass_key for row in second)


# The merge rule of visits (S2, S10).


def offer(session: Session, number: int, seconds: float, lane: Lane = Lane.MAIN) -> Key:
    """Asked for in so many seconds from now."""
    now = session.execute(sa.select(sa.func.now())).scalar_one()
    key = visit.entity(number)
    visit.offer(session, key, now + timedelta(seconds=seconds), lane)
    session.commit()
    return key


def due_in(visits: Table, session: Session, key: Key) -> float:
    row = visits.row(session, key)
    now = session.execute(sa.select(sa.func.now())).scalar_one()
    return float(round((row.due_at - now).total_seconds(), -1))


def test_offer_twice_keeps_the_earliest(visits: Table, session: Session) -> None:
    # S2
    for seconds in (600, 300, 900):
        key = offer(session, 1, seconds)
    assert due_in(visits, session, key) == 300


def test_offered_while_visited_is_visited_again_at_the_earliest(visits: Table, session: Session) -> None:
    # S10
    key = offer(session, 1, -5)
    claim = visits.take()
    for seconds in (900, 600):
        offer(session, 1, seconds)
    assert visits.state(session, key) == "running"
    assert do("finish", visits, claim.pass_key, [key]) == {key}
    row = visits.row(session, key)
    assert (row.state, row.again_at, row.attempts, row.low_at) == ("waiting", None, 0, None)
    assert due_in(visits, session, key) == 600


def test_of_a_batch_only_what_was_asked_again_stays(visits: Table, session: Session) -> None:
    # S10
    keys = [offer(session, number, -9 + number) for number in range(3)]
    claim = visits.take(3)
    offer(session, 1, 0)
    assert do("finish", visits, claim.pass_key, keys) == set(keys)
    assert [visits.state(session, key) for key in keys] == [None, "waiting", None]
    assert visits.taken(visits.take(3)) == [keys[1]]


def test_an_offer_for_later_does_not_put_off_what_went_back(visits: Table, session: Session) -> None:
    # S10: the earliest of the requested times.
    key = offer(session, 1, -5)
    claim = visits.take()
    offer(session, 1, 3600)
    do("give_back", visits, claim.pass_key, [key])
    assert visits.taken(visits.take()) == [key]


def test_an_offer_does_not_shorten_the_backoff(visits: Table, session: Session) -> None:
    key = offer(session, 1, -5)
    claim = visits.take()
    with transaction() as tx:
        claims.give_back(tx, visits.model, claim.pass_key, [key], charged=True, delay=HOUR)
    offer(session, 1, -100)
    assert visits.take().rows == ()


def test_a_parked_visit_stays_parked_when_it_is_offered(visits: Table, session: Session) -> None:
    key = offer(session, 1, -5)
    do("park", visits, visits.take().pass_key, [key])
    offer(session, 1, -1)
    assert visits.state(session, key) == "parked"
    assert visits.take().rows == ()


def test_a_low_visit_that_goes_back_stays_in_the_low_lane(visits: Table, session: Session) -> None:
    # S16
    key = offer(session, 1, -5, Lane.LOW)
    claim = visits.take(lane=Lane.LOW, lease=timedelta(seconds=-1))
    assert visits.taken(claim) == [key]
    visits.sweep()
    session.execute(sa.update(visits.model).values(not_before=None))
    session.commit()
    assert visits.take().rows == ()
    assert visits.taken(visits.take(lane=Lane.LOW)) == [key]
