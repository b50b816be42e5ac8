"""Why a task runs or does not (T24): every state, what holds it, and past evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import limits
from app.db import transaction
from app.errors import BadRequest, NotFound
from tests.kit import reactive_cli as kit
from tests.kit.cli import live_worker
from tests.kit.reactive_cli import MART, ORDERS, Worker, day, evaluate, orders, register
from triggers import lookup, operate, pools
from triggers.aggregates import All
from triggers.model import CtlSeen, Evaluation, ReactiveTask, TaskRun
from triggers.run import Run
from triggers.trigger import ChunkDelta, Delta, RefDelay
from triggers.why import Why, why


@pytest.fixture(autouse=True)
def _task(session: Session, broker_url: str) -> Iterator[None]:
    register(kit.definition())
    yield
    kit.unregister()


@pytest.fixture
def worker() -> Worker:
    return Worker()


def now(session: Session, name: str = MART) -> Why:
    session.rollback()
    return why(session, name)


def fail(_run: Run) -> None:
    raise RuntimeError("no disk\nleft")


# Now


def test_a_missing_value_is_told(session: Session) -> None:  # T14
    found = now(session)
    assert (found.state, found.fired, found.holds, found.run) == ("idle", False, (), {})
    assert found.tree["missing"] == ["current", "last_seen"]
    assert "it has no value yet" in found.explain()


def test_the_tree_has_all_that_decides(session: Session, worker: Worker) -> None:  # T24
    both = All(Delta(*ORDERS, "2d"), RefDelay(*ORDERS, "src.orders", "loaded_to", "1d"))
    register(kit.definition(trigger=both))
    orders(1)
    assert now(session).tree["children"][1]["missing"] == ["reference"]
    session.add(CtlSeen(task=MART, entity=ORDERS[0], parameter=ORDERS[1], value=day(1)))
    session.commit()
    orders(2)
    grown, _ = now(session).tree["children"]
    assert grown["last_seen"] == day(1).isoformat()
    assert grown["current"] == day(2).isoformat()
    assert grown["threshold"] == day(3).isoformat()
    assert (grown["distance_seconds"], grown["distance"]) == (86400.0, "1d")


def test_a_task_that_begins_with_what_is_there_is_not_ready(session: Session) -> None:  # T12
    register(kit.definition(first_run="baseline"))
    orders(1)
    assert now(session).state == "idle"
    assert evaluate() == 0


def test_ready_waiting_running_and_idle(session: Session, worker: Worker) -> None:
    orders(1)
    assert now(session).state == "ready"
    evaluate()
    found = now(session)
    assert (found.state, found.fired, found.run["state"]) == ("waiting", True, "waiting")
    assert found.holds == (
        f"run {found.run['id']} waits in pool marts: 0 before it, 0 running",
        "no live worker takes reactive.marts: celery -A app worker -Q reactive.marts",
    )
    inside: list[Why] = []
    worker.serve(lambda _run: inside.append(now(session)))
    assert inside[0].state == "running"
    assert "works on it since" in inside[0].holds[0]
    found = now(session)
    assert (found.state, found.holds, found.run["state"]) == ("idle", (), "done")


def test_what_the_pool_holds(session: Session) -> None:  # T20
    names = [f"shop.marts.t{number}" for number in range(4)]
    register(*(kit.definition(name, priority=-number) for number, name in enumerate(names)))
    pools.configure("marts", max_parallel=1, rate_limit="6/min")
    orders(1)
    evaluate()
    with live_worker("reactive.marts"):
        inside: list[Why] = []
        Worker().serve(lambda _run: inside.append(now(session, names[2])))
        [held] = inside[0].holds
        assert "1 before it, 1 running of 1: it is full, at most 6/min may start" in held
        assert "0 running of 1," in now(session, names[2]).holds[0]
        with transaction() as tx:
            limits.configure(tx, "reactive.marts", paused=True)
        assert "the pool is paused: tidemill queue resume reactive.marts" in now(session, names[3]).holds[0]


def test_backoff(session: Session, worker: Worker) -> None:  # T22
    orders(1)
    evaluate()
    worker.serve(fail)
    found = now(session)
    assert found.state == "waiting"
    assert "backs off after RuntimeError: no disk: it is tried again from " in found.holds[0]
    session.execute(sa.update(TaskRun).values(error="x" * 4000))
    session.commit()
    assert len(now(session).holds[0]) < 500


def test_pause_and_min_interval(session: Session, worker: Worker) -> None:
    register(kit.definition(min_interval=timedelta(hours=1)))
    orders(1)
    evaluate()
    worker.serve()
    orders(3)
    found = now(session)
    assert (found.state, found.fired) == ("resting", True)
    assert "its min_interval lets it start again from" in found.holds[0]
    operate.pause(MART)
    found = now(session)
    assert (found.state, found.holds[0]) == ("paused", f"it is paused: tidemill reactive resume {MART}")


def test_quarantine_until_the_input_moves(session: Session, worker: Worker) -> None:  # T22
    register(kit.definition(max_failures=1))
    orders(1)
    evaluate()
    worker.serve(fail)
    found = now(session)
    assert (found.state, found.fired) == ("quarantined", True)
    assert "failed 1 times in a row: RuntimeError: no disk), until its input moves" in found.holds[0]
    assert f"tidemill reactive release {MART}" in found.holds[0]
    orders(2)
    found = now(session)
    assert (found.state, found.holds) == ("ready", ())


def test_a_removed_task(session: Session) -> None:
    register(kit.definition("shop.marts.other"))
    found = now(session)
    assert found.state == "removed"
    assert "it is not declared any more since" in found.holds[0]


# Then


def evaluations(session: Session) -> list[datetime]:
    session.rollback()
    return list(session.execute(sa.select(Evaluation.at).order_by(Evaluation.id)).scalars())


def test_a_past_evaluation_has_the_values_of_then(session: Session, worker: Worker) -> None:
    orders(1)
    evaluate()
    waiting = datetime.now(UTC)
    worker.serve()
    orders(2)
    evaluate()
    register(kit.definition(trigger=ChunkDelta(*ORDERS, "year")))
    session.rollback()
    first, claim, *_ = evaluations(session)
    found = why(session, MART, waiting)
    assert (found.at, found.state, found.fired, found.cause) == (first, "fired", True, "polling")
    assert (found.tree["kind"], found.tree["current"]) == ("delta", day(1).isoformat())
    [held] = found.holds
    assert f"run {found.run['id']} waited in pool marts, until " in held
    found = why(session, MART, claim)
    assert (found.cause, found.run["state"]) == ("claim", "done")
    assert why(session, MART, datetime.now(UTC)).tree["last_seen"] == day(1).isoformat()


def test_the_run_of_a_past_evaluation_may_work_still(session: Session, worker: Worker) -> None:
    orders(1)
    evaluate()
    inside: list[Why] = []

    def body(_run: Run) -> None:
        session.rollback()
        inside.append(why(session, MART, datetime.now(UTC)))

    worker.serve(body)
    assert inside[0].holds == (f"run {inside[0].run['id']} worked on it, and works still",)


def test_before_the_first_evaluation_there_is_nothing_to_say(session: Session) -> None:
    with pytest.raises(NotFound, match="none is kept of it"):
        why(session, MART, day(1))
    orders(1)
    evaluate()
    with pytest.raises(NotFound, match="the first that is kept is of"):
        why(session, MART, day(1) - timedelta(days=3000))


def test_a_moment_without_a_zone_is_refused(session: Session) -> None:
    with pytest.raises(BadRequest, match=r"at=2026-07-01T00:00:00 has no time zone"):
        why(session, MART, datetime(2026, 7, 1))  # noqa: DTZ001


def test_why_changes_nothing(session: Session) -> None:
    orders(1)
    before = _rows(session)
    assert why(session, MART).state == "ready"
    session.commit()
    assert _rows(session) == before


def _rows(session: Session) -> list[Any]:
    return [session.execute(sa.select(*model.__table__.c)).all() for model in (ReactiveTask, CtlSeen, TaskRun)]


# Names


@pytest.mark.parametrize("words", [MART, "build_orders_mart", "marts.build_orders_mart"])
def test_the_end_of_a_name_will_do(session: Session, words: str) -> None:
    assert lookup.task(session, words) == MART


def test_an_exact_name_comes_before_the_end_of_another(session: Session) -> None:
    register(kit.definition(), kit.definition("marts.build_orders_mart", module="shop.marts"))
    assert lookup.task(session, "marts.build_orders_mart") == "marts.build_orders_mart"


def test_what_may_be_several_is_listed(session: Session) -> None:
    register(kit.definition(), kit.definition("shop.old.build_orders_mart"))
    with pytest.raises(BadRequest, match=f"may be one of {MART}, shop.old.build_orders_mart: write more"):
        lookup.task(session, "build_orders_mart")
    session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == MART).values(removed_at=sa.func.now()))
    assert lookup.task(session, "build_orders_mart") == "shop.old.build_orders_mart"


@pytest.mark.parametrize("words", ["build_order_mart", "shop.mart.build_orders_mart", "build_orders_mar"])
def test_the_nearest_name_is_told(session: Session, words: str) -> None:
    with pytest.raises(NotFound, match=f"did you mean {MART}"):
        lookup.task(session, words)


@pytest.mark.parametrize("words", ["", "x" * 100_000, "a\x00b", "\ud800", "%", "_", "mart", ".", "'; --"])
def test_nonsense_is_nobodys_name(session: Session, words: str) -> None:
    with pytest.raises(NotFound, match="there is no reactive task") as error:
        lookup.task(session, words)
    assert len(str(error.value)) < 500
    assert str(error.value).isprintable()
