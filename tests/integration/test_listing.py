"""Tasks, runs and pools as lists."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from app.db import transaction
from app.errors import NotFound
from tests.kit import reactive_cli as kit
from tests.kit.reactive_cli import MART, Worker, day, evaluate, orders, register
from triggers import listing, operate, pools
from triggers.pools import pool
from triggers.run import Run

NAMES = ["shop.marts.a", "shop.marts.b", "shop.marts.c", "shop.marts.d"]


@pytest.fixture(autouse=True)
def _tasks(session: Session, broker_url: str) -> Iterator[None]:
    register(*(kit.definition(name, priority=-number) for number, name in enumerate(NAMES)))
    yield
    kit.unregister()


def states(session: Session) -> dict[str, str]:
    session.rollback()
    return {each.name[-1]: each.state for each in listing.tasks(session)}


def test_every_state(session: Session) -> None:
    assert states(session) == dict.fromkeys("abcd", "idle")
    orders(1)
    evaluate()
    operate.pause(NAMES[0])
    operate.cancel(NAMES[1], reason="no disk")
    inside: list[dict[str, str]] = []
    Worker().serve(lambda _run: inside.append(states(session)))
    assert inside == [{"a": "paused", "b": "quarantined", "c": "running", "d": "waiting"}]
    session.rollback()
    [held] = listing.tasks(session, state="quarantined")
    assert (held.name, held.last_run, held.reason) == (NAMES[1], "cancelled", "cancelled: no disk")
    assert [each.name for each in listing.tasks(session, pool="marts", limit=2)] == NAMES[:2]
    assert listing.tasks(session, pool="other") == []


def test_a_removed_task_is_shown_when_asked_for(session: Session) -> None:
    register(*(kit.definition(name) for name in NAMES[1:]))
    assert set(states(session)) == set("bcd")
    assert [each.name for each in listing.tasks(session, state="removed")] == NAMES[:1]


def test_every_state_can_be_asked_for(session: Session) -> None:
    for word in listing.STATES:
        assert all(each.state == word for each in listing.tasks(session, state=word))


def test_why_a_run_waits_is_in_the_list(session: Session) -> None:
    orders(1)
    evaluate()

    def fail(_run: Run) -> None:
        raise RuntimeError("no disk")

    Worker().serve(fail)
    session.rollback()
    first = listing.tasks(session)[0]
    assert (first.state, first.failures, first.reason) == ("waiting", 1, "RuntimeError: no disk")


def test_runs_the_latest_first(session: Session) -> None:
    register(kit.definition())
    operate.start(MART, record=True, window=(day(1), day(2)))
    operate.cancel(MART, reason="wrong")
    operate.start(MART)
    session.rollback()
    now, past = listing.runs(session, MART)
    assert (now.state, past.state, past.kind, past.error) == ("waiting", "cancelled", "manual", "wrong")
    assert (past.window_from, past.window_to, past.record) == (day(1), day(2), True)
    assert past.requested_by
    assert len(listing.runs(session, MART, limit=1)) == 1


def test_a_pool_with_what_is_in_it(session: Session) -> None:
    found = listing.pool(session, "marts")
    assert (found.tasks, found.waiting, found.max_parallel, found.declared) == (4, 0, None, None)
    assert found.ageing == timedelta(minutes=1)
    orders(1)
    evaluate()
    pools.configure("marts", max_parallel=2, rate_limit="6/min")
    session.rollback()
    found = listing.pool(session, "marts")
    assert (found.waiting, found.running, found.max_parallel, found.rate_limit) == (4, 0, 2, "6/min")


def test_what_the_code_declares_comes_back_when_it_changes(session: Session) -> None:
    def limit(declared: int) -> int | None:
        pool("marts", max_parallel=declared)
        with transaction() as tx:
            pools.write_declared(tx, {"marts"})
        session.rollback()
        return listing.pool(session, "marts").max_parallel

    try:
        assert limit(3) == 3
        pools.configure("marts", max_parallel=9)
        assert limit(3) == 9
        assert limit(4) == 4
    finally:
        pools.declared.clear()


@pytest.mark.parametrize(("name", "hint"), [("mart", "did you mean marts"), ("x" * 9999, "there is marts")])
def test_an_unknown_pool(session: Session, name: str, hint: str) -> None:
    with pytest.raises(NotFound, match=hint) as error:
        listing.pool(session, name)
    assert len(str(error.value)) < 300
