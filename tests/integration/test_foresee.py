"""What would happen if, and slots that are kept, as a person is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.errors import MovesBack
from tests.kit import reactive_cli as kit
from tests.kit.reactive_cli import MART, ORDERS, Worker, day, evaluate, orders, register
from triggers import ctl, foresee, operate, pools, registration
from triggers.aggregates import All, Any
from triggers.foresee import Start
from triggers.model import Ctl, CtlChange, CtlSeen, ReactiveHold, ReactiveTask, TaskRun
from triggers.run import Run
from triggers.service.service import Service
from triggers.trigger import ChunkDelta, Delay, Delta, RefDelay, Trigger
from triggers.why import Why, why

OTHER = "shop.marts.other"
SOURCE = ("src.orders", "loaded_to")


@pytest.fixture(autouse=True)
def _clean(session: Session, broker_url: str) -> Iterator[None]:
    with kit.alone():
        yield


def has_seen(session: Session, number: int, task: str = MART) -> None:
    session.add(CtlSeen(task=task, entity=ORDERS[0], parameter=ORDERS[1], value=day(number)))
    session.commit()


def waiting(session: Session, *name: str) -> list[tuple[str, str, str | None]]:
    session.rollback()
    return [(each.task, each.parameter, each.distance) for each in foresee.waiting_for(session, *name)]


def starts(session: Session, at: datetime, name: tuple[str, str] = ORDERS) -> list[Start]:
    session.rollback()
    return foresee.would_start(session, {name: at})


# Who waits for it


def test_who_waits_is_told_with_threshold_and_distance_the_nearest_first(session: Session) -> None:
    register(kit.definition(trigger=Delta(*ORDERS, "3d")), kit.definition(OTHER, Delta(*ORDERS, "2d")))
    has_seen(session, 1)
    has_seen(session, 1, OTHER)
    orders(2)
    assert waiting(session, *ORDERS) == [(OTHER, "loaded_to", "1d"), (MART, "loaded_to", "2d")]
    first = foresee.waiting_for(session, *ORDERS)[0]
    assert (first.threshold, first.distance_seconds) == (day(3).isoformat(), 86400.0)
    assert "must grow by 2d" in first.sentence
    orders(3)
    assert waiting(session, *ORDERS) == [(MART, "loaded_to", "1d")]


def test_who_waits_for_a_value_that_there_is_not(session: Session) -> None:  # T14
    register(kit.definition())
    assert waiting(session, *ORDERS) == [(MART, "loaded_to", None)]
    assert waiting(session, "dds.orders") == [(MART, "loaded_to", None)]
    assert waiting(session, "nobody") == []


def test_a_reference_is_waited_for_only_while_it_has_no_value(session: Session) -> None:
    register(kit.definition(trigger=RefDelay(*ORDERS, *SOURCE, "1d"), min_interval=timedelta(0)))
    orders(1)
    assert waiting(session, *ORDERS) == []
    assert waiting(session, *SOURCE) == [(MART, "loaded_to", None)]
    ctl.advance_many({SOURCE: day(5)})
    assert waiting(session, *ORDERS) == [(MART, "loaded_to", "3d")]
    assert waiting(session, *SOURCE) == []


def test_only_conditions_that_do_not_hold_wait(session: Session) -> None:
    register(kit.definition(trigger=All(Delta(*ORDERS, "2d"), Delta(*SOURCE, "1d"))))
    orders(1)
    assert waiting(session, *ORDERS) == []
    assert waiting(session, *SOURCE) == [(MART, "loaded_to", None)]
    register(kit.definition(trigger=Any(Delta(*ORDERS, "2d"), Delta(*SOURCE, "1d"))))
    assert waiting(session, *SOURCE) == []


# Who would start


def test_who_would_start(session: Session) -> None:
    register(kit.definition(trigger=Delta(*ORDERS, "3d")), kit.definition(OTHER, Delta(*ORDERS, "2d"), pool="other"))
    has_seen(session, 1)
    has_seen(session, 1, OTHER)
    orders(1)
    assert starts(session, day(2)) == []
    assert starts(session, day(3)) == [Start(OTHER, "other", None)]
    assert [each.task for each in starts(session, day(4))] == [MART, OTHER]


def test_nothing_is_changed_by_looking(session: Session) -> None:
    register(kit.definition())
    before = [session.execute(sa.select(sa.func.count()).select_from(each)).scalar_one() for each in (Ctl, CtlChange)]
    assert foresee.would_move({ORDERS: day(1)}) == {ORDERS}
    assert starts(session, day(1)) == [Start(MART, "marts", None)]
    session.rollback()
    after = [session.execute(sa.select(sa.func.count()).select_from(each)).scalar_one() for each in (Ctl, CtlChange)]
    assert after == before == [0, 0]
    assert evaluate() == 0


def test_what_an_advance_refuses_is_refused(session: Session) -> None:  # T15
    orders(2)
    assert foresee.would_move({ORDERS: day(2)}) == set()
    with pytest.raises(MovesBack, match="cannot be advanced back"):
        foresee.would_move({ORDERS: day(1)})


def test_who_started_anyway_is_not_told(session: Session) -> None:
    register(kit.definition())
    orders(1)
    assert starts(session, day(2)) == []


def test_a_baseline_does_not_start(session: Session) -> None:  # T12
    register(kit.definition(trigger=ChunkDelta(*ORDERS, "day"), first_run="baseline"))
    assert starts(session, day(1)) == []
    orders(1)
    assert starts(session, day(1) + timedelta(hours=1)) == []
    assert [each.task for each in starts(session, day(2))] == [MART]


def held(session: Session) -> str | None:
    [found] = starts(session, day(9))
    return found.held


def test_what_holds_it_all_the_same(session: Session) -> None:
    worker = Worker()
    register(kit.definition())
    orders(1)
    evaluate()
    worker.serve()
    assert held(session) is None
    operate.pause(MART)
    assert held(session) == "it is paused"
    operate.resume(MART)
    session.execute(sa.update(ReactiveTask).values(start_after=day(1) + timedelta(days=36500)))
    session.commit()
    assert "its min_interval lets it start from" in (held(session) or "")
    session.execute(sa.update(ReactiveTask).values(start_after=None))
    session.commit()
    operate.start(MART)
    assert "it has a run already" in (held(session) or "")


def test_a_quarantined_task_is_started_by_other_input(session: Session) -> None:
    # T22
    register(kit.definition())
    orders(1)
    session.execute(sa.update(ReactiveTask).values(quarantined_at=sa.func.now(), quarantine_values=snapshot(1)))
    session.commit()
    assert starts(session, day(2)) == [Start(MART, "marts", None)]


def snapshot(number: int) -> list[list[str | None]]:
    return [[*ORDERS, None, day(number).isoformat()]]


# What a deploy would start


def test_a_plan_tells_new_changed_and_removed_and_changes_nothing(session: Session) -> None:
    orders(1)
    register(kit.definition(), kit.definition(OTHER), kit.definition("shop.marts.gone"))
    registration.declared.pop("shop.marts.gone")
    registration.declared[OTHER] = kit.definition(OTHER, Delta(*ORDERS, "5d"), priority=7)
    registration.declared["shop.marts.fresh"] = kit.definition("shop.marts.fresh", Delta(*SOURCE, "1d"))
    made = foresee.plan()
    assert made.synced.new == ("shop.marts.fresh",)
    assert made.synced.removed == ("shop.marts.gone",)
    assert made.what == {OTHER: ("trigger", "priority")}
    assert made.starts == (Start(OTHER, "marts", None),)
    assert [each.kind.value for each in made.synced.findings] == ["no-value"]
    assert foresee.plan() == made
    session.rollback()
    rows = session.execute(sa.select(ReactiveTask.name, ReactiveTask.priority, ReactiveTask.removed_at)).all()
    assert {row.name: (row.priority, row.removed_at) for row in rows} == dict.fromkeys(
        (MART, OTHER, "shop.marts.gone"), (0, None)
    )


def test_a_plan_tells_what_would_not_start_all_the_same(session: Session) -> None:
    register(kit.definition())
    orders(1)
    operate.pause(MART)
    registration.declared[MART] = kit.definition(code="2")
    made = foresee.plan()
    assert (made.what, made.starts) == ({MART: ("code",)}, (Start(MART, "marts", "it is paused"),))


def test_a_plan_of_what_is_registered_is_empty(session: Session) -> None:
    register(kit.definition())
    made = foresee.plan()
    assert (made.synced.changed, made.what, made.starts, made.synced.findings) == ((), {}, (), ())


# What is kept


def consumer(trigger: Trigger | None = None) -> None:
    """An important task that waits for what `shop.marts.load` delivers, beside one of no importance."""
    wanted = trigger or Delta(*ORDERS, "1d")
    register(
        kit.definition(MART, wanted, priority=10),
        kit.definition("shop.marts.load", Delta(*SOURCE, "1d"), produces=(ORDERS,), pool="loads"),
        kit.definition(OTHER, Delta("a", "b", "1d"), priority=0),
    )
    pools.configure("marts", max_parallel=1)


def follow(service: Service) -> None:
    while service.run_once().more:
        pass


def looked(session: Session, name: str) -> Why:
    session.rollback()
    return why(session, name)


def test_why_names_whom_a_run_is_held_for_and_what_is_kept(session: Session) -> None:  # T21, T24
    consumer()
    service = Service()
    follow(service)
    ctl.advance_many({SOURCE: day(1)})
    follow(service)
    ctl.advance_many({("a", "b"): day(1)})
    follow(service)
    [kept] = looked(session, MART).kept
    assert kept.startswith("a slot is kept for it in pool marts until 20")
    assert kept.endswith("while run 1 of shop.marts.load waits for its turn")
    found = looked(session, OTHER)
    assert (found.state, found.kept) == ("waiting", ())
    [sentence] = [each for each in found.holds if "is held for" in each]
    assert sentence.startswith(f"run {found.run['id']} is held for {MART} until 20")
    assert "a slot of pool marts is kept for it, while run 1 of shop.marts.load waits" in sentence
    assert Worker().serve() == 0

    inside: list[Why] = []
    Worker("loads").serve(lambda _run: inside.append(looked(session, MART)))
    assert inside[0].kept[0].endswith("while run 1 of shop.marts.load works")


def test_a_hold_that_is_over_is_not_told(session: Session) -> None:
    consumer()
    service = Service()
    follow(service)
    ctl.advance_many({SOURCE: day(1), ("a", "b"): day(1)})
    follow(service)
    assert looked(session, MART).kept
    over = sa.func.now() - timedelta(minutes=1)
    session.execute(sa.update(ReactiveHold).values(until=over))
    session.execute(sa.text("update tidemill.queue set kept_until = array_fill(now() - interval '1 minute', '{1}')"))
    session.commit()
    assert looked(session, MART).kept == ()
    assert not [each for each in looked(session, OTHER).holds if "held" in each]


def test_one_that_is_as_important_is_not_held(session: Session) -> None:
    consumer()
    follow(service := Service())
    ctl.advance_many({SOURCE: day(1), ("a", "b"): day(1)})
    follow(service)
    session.execute(sa.update(TaskRun).where(TaskRun.task == OTHER).values(rank=-10))
    session.commit()
    assert not [each for each in looked(session, OTHER).holds if "held" in each]


def test_a_full_pool_is_full_and_not_held(session: Session) -> None:
    consumer()
    follow(service := Service())
    register_more = kit.definition("shop.marts.third", Delta("a", "b", "1d"), priority=-1)
    register(*registration.declared.values(), register_more)
    ctl.advance_many({("a", "b"): day(1)})
    follow(service)
    inside: list[Why] = []

    def body(_run: Run) -> None:
        ctl.advance_many({SOURCE: day(1)})
        follow(service)
        inside.append(looked(session, "shop.marts.third"))

    Worker().serve(body)
    assert "1 running of 1: it is full" in inside[0].holds[0]
    assert not [each for each in inside[0].holds if "held for" in each]


def test_delay_that_has_passed_is_waited_for(session: Session) -> None:
    register(kit.definition(trigger=Delay(*ORDERS, "1h"), min_interval=timedelta(0)))
    orders(-400)
    [found] = foresee.waiting_for(session, *ORDERS)
    assert found.distance_seconds is not None
    assert found.distance_seconds > 0
