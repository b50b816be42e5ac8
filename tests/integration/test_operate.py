"""What a person does with a reactive task, at any moment of its runs (T11, T15, T22)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import Audit
from app.db import transaction
from app.errors import BadRequest, ClaimLost, NotFound
from tests.kit import reactive_cli as kit
from tests.kit.reactive_cli import MART, ORDERS, Worker, day, evaluate, orders, register, seen, states
from triggers import ctl, endings, operate, preview
from triggers.aggregates import All
from triggers.model import ReactiveTask, RunId
from triggers.run import Run
from triggers.trigger import Delay, Delta
from triggers.why import why

CHANGES: list[Callable[[str], Any]] = [
    operate.start,
    operate.cancel,
    lambda name: operate.rewind(name, day(1)),
    operate.forget,
    operate.pause,
    operate.resume,
    operate.release,
]
NAMES = ["start", "cancel", "rewind", "forget", "pause", "resume", "release"]


@pytest.fixture(autouse=True)
def _task(session: Session, broker_url: str) -> Iterator[None]:
    """One task, and orders up to the 1st."""
    register(kit.definition())
    orders(1)
    yield
    kit.unregister()


@pytest.fixture
def worker() -> Worker:
    return Worker()


def state(session: Session) -> str:
    session.rollback()
    return why(session, MART).state


def quarantined(session: Session) -> bool:
    session.rollback()
    query = sa.select(ReactiveTask.quarantined_at).where(ReactiveTask.name == MART)
    return session.execute(query).scalar_one() is not None


@pytest.mark.parametrize("change", CHANGES, ids=NAMES)
def test_an_unknown_task_is_told_with_the_nearest(change: Callable[[str], Any]) -> None:
    with pytest.raises(NotFound, match=f"did you mean {MART}"):
        change("shop.marts.build_order_mart")


def actions(session: Session) -> list[str]:
    session.rollback()
    return list(session.execute(sa.select(Audit.action).order_by(Audit.id)).scalars())


def test_everything_is_audited(session: Session) -> None:
    operate.start(MART)
    for change in CHANGES[1:]:
        change(MART)
    assert actions(session) == [f"reactive.{word}" for word in ("run", *NAMES[1:])]


def test_what_is_refused_leaves_no_trace(session: Session) -> None:
    with pytest.raises(BadRequest, match="nothing to cancel"):
        operate.cancel(MART)
    assert actions(session) == []


# By hand


def test_a_run_by_hand_is_not_remembered(session: Session, worker: Worker) -> None:  # T11
    operate.start(MART)
    assert worker.serve() == 1
    assert worker.runs[0].manual
    # Its end is an event: the trigger holds, and the regular run comes.
    assert (states(session), seen(session)) == (["done", "waiting"], None)


def test_a_run_by_hand_is_remembered_when_asked(session: Session, worker: Worker) -> None:  # T11
    operate.start(MART, record=True)
    worker.serve()
    assert (states(session), seen(session)) == (["done"], day(1))


def test_a_window_is_what_the_run_is_given(session: Session, worker: Worker) -> None:
    operate.start(MART, record=True)
    worker.serve()
    operate.start(MART, window=(day(-5), day(-3)))
    worker.serve(lambda run: run.advance("mart.orders", built_to=day(-3)))
    assert worker.runs[1].window(*ORDERS) == (day(-5), day(-3))
    assert (seen(session), ctl.get("mart.orders", "built_to")) == (day(1), day(-3))


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ((day(2), day(1)), "its end must be later"),
        ((day(1), day(1)), "its end must be later"),
        ((datetime(2026, 7, 1), day(2)), r"\.from=.* has no time zone"),  # noqa: DTZ001
        ((day(1), datetime(2026, 7, 2)), r"\.to=.* has no time zone"),  # noqa: DTZ001
        ((day(1), datetime.max.replace(tzinfo=day(1).tzinfo)), "lies after 9998"),
    ],
)
def test_a_window_that_is_none_is_refused(session: Session, window: tuple[datetime, datetime], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        operate.start(MART, window=window)
    assert states(session) == []


def test_a_paused_or_quarantined_task_can_be_run_by_hand(session: Session, worker: Worker) -> None:
    operate.pause(MART)
    operate.start(MART)
    operate.pause(MART)  # leaves it
    assert worker.serve() == 1
    assert states(session) == ["done"]


def test_a_second_run_and_one_of_a_removed_task_are_refused(session: Session) -> None:  # T16
    run = operate.start(MART)
    with pytest.raises(BadRequest, match=f"waiting .run {run}.: wait for its end, or cancel"):
        operate.start(MART)
    operate.cancel(MART)
    register(kit.definition("shop.marts.other"))  # and not the one of before
    with pytest.raises(BadRequest, match="not declared any more"):
        operate.start(MART, window=(day(1), day(2)))
    assert state(session) == "removed"


def test_of_two_operators_at_once_one_starts_it(session: Session) -> None:
    def attempt(_number: int) -> bool:
        try:
            operate.start(MART)
        except BadRequest:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, range(8))) == 1
    assert states(session) == ["waiting"]


# Last seen


def done_with(worker: Worker, number: int) -> None:
    orders(number)
    evaluate()
    assert worker.serve() == 1


def during(change: Callable[[], Any]) -> Callable[[Run], None]:
    def body(_run: Run) -> None:
        change()

    return body


def test_rewind_takes_back_what_came_later(session: Session, worker: Worker) -> None:  # T15
    done_with(worker, 10)
    [taken] = operate.rewind(MART, day(5))
    assert (taken.before, taken.after) == (day(10), day(5))
    assert (states(session), seen(session)) == (["done", "waiting"], day(5))
    worker.serve()
    assert worker.runs[-1].window(*ORDERS) == (day(5), day(10))
    assert operate.rewind(MART, day(20)) == []


def test_the_end_of_a_run_does_not_write_over_a_rewound_value(session: Session, worker: Worker) -> None:  # T15
    done_with(worker, 10)
    orders(12)
    evaluate()
    worker.serve(during(lambda: operate.rewind(MART, day(5))))
    assert (states(session), seen(session)) == (["done", "done", "waiting"], day(5))
    worker.serve()
    assert worker.runs[-1].window(*ORDERS) == (day(5), day(12))
    assert seen(session) == day(12)


def test_a_run_that_waits_is_given_the_rewound_value_and_remembers(session: Session, worker: Worker) -> None:
    done_with(worker, 10)
    orders(12)
    evaluate()
    operate.rewind(MART, day(5))
    worker.serve()
    assert worker.runs[-1].window(*ORDERS) == (day(5), day(12))
    assert (states(session), seen(session)) == (["done", "done"], day(12))


def test_forget_while_a_run_works(session: Session, worker: Worker) -> None:
    done_with(worker, 10)
    orders(12)
    evaluate()
    worker.serve(during(lambda: operate.forget(MART)))
    assert (states(session)[-1], seen(session)) == ("waiting", None)
    worker.serve()
    assert worker.runs[-1].window(*ORDERS) == (None, day(12))


def test_forget_of_a_task_that_begins_with_what_is_there(session: Session) -> None:  # T12
    register(kit.definition(first_run="baseline"))
    assert (evaluate(), seen(session)) == (0, day(1))
    with transaction() as tx:
        assert preview.forget(tx, MART).then.state == "idle"
    operate.forget(MART)
    assert (states(session), seen(session)) == ([], day(1))


def test_a_preview_says_what_comes(session: Session, worker: Worker) -> None:
    done_with(worker, 10)
    for to, expected in ((day(9), "ready"), (day(10), "idle")):
        with transaction() as tx:
            found = preview.rewind(tx, MART, to)
        assert found.then.state == expected
        assert [each.before for each in found.seen] == ([day(10)] if to < day(10) else [])
    with transaction() as tx:
        assert preview.forget(tx, MART).then.state == "ready"
    assert (states(session), seen(session)) == (["done"], day(10))


def test_restated_and_rewound(session: Session, worker: Worker) -> None:  # T15
    done_with(worker, 10)
    ctl.restate("dds.orders", loaded_to=day(4), reason="empty")
    session.rollback()
    found = why(session, MART)
    assert found.state == "idle"
    assert f"tidemill reactive rewind {MART} --to 2026-07-04T00:00:00Z" in found.holds[0]
    operate.rewind(MART, day(4))
    orders(5)
    assert evaluate() == 1
    worker.serve()
    assert worker.runs[-1].window(*ORDERS) == (day(4), day(5))


# Pausing


def test_pause_takes_back_what_waits(session: Session, worker: Worker) -> None:
    evaluate()
    assert operate.pause(MART)
    assert not operate.pause(MART)
    assert (states(session), evaluate(), worker.serve()) == (["cancelled"], 0, 0)
    assert not quarantined(session)
    assert operate.resume(MART)
    assert not operate.resume(MART)
    assert states(session) == ["cancelled", "waiting"]


def test_pause_lets_what_works_end(session: Session, worker: Worker) -> None:
    evaluate()

    def body(_run: Run) -> None:
        operate.pause(MART)
        orders(5)

    worker.serve(body)
    assert (states(session), seen(session)) == (["done"], day(1))
    operate.resume(MART)
    assert states(session) == ["done", "waiting"]


# Cancelling


def test_cancel_of_what_waits_lasts_until_the_input_moves(session: Session) -> None:
    evaluate()
    operate.cancel(MART, reason="no disk")
    assert (states(session), state(session), evaluate()) == (["cancelled"], "quarantined", 0)
    assert "cancelled: no disk" in why(session, MART).holds[0]
    orders(2)
    assert state(session) == "ready"
    assert evaluate() == 1


def test_cancel_of_what_works(session: Session, worker: Worker) -> None:
    evaluate()
    lost = []

    def body(run: Run) -> None:
        operate.cancel(MART)
        try:
            run.heartbeat()
        except ClaimLost as error:
            lost.append(str(error))
        run.advance("mart.orders", built_to=day(1))

    worker.serve(body)
    assert len(lost) == 1
    assert (states(session), seen(session), evaluate()) == (["cancelled"], None, 0)
    assert ctl.get("mart.orders", "built_to") is None


def test_what_moved_while_a_cancelled_run_worked_starts_it(session: Session, worker: Worker) -> None:
    evaluate()

    def body(_run: Run) -> None:
        orders(5)
        operate.cancel(MART)

    worker.serve(body)
    assert states(session) == ["cancelled", "waiting"]


def test_cancel_of_what_waits_to_be_tried_again_counts_from_now(session: Session, worker: Worker) -> None:
    """Not from what its last attempt was checked with."""
    evaluate()

    def body(_run: Run) -> None:
        raise RuntimeError("no")

    worker.serve(body)
    orders(5)
    operate.cancel(MART)
    assert (states(session), state(session), evaluate()) == (["cancelled"], "quarantined", 0)


def test_cancel_of_another_run_than_was_meant(session: Session) -> None:
    evaluate()
    with pytest.raises(BadRequest, match=r"run 999 of .* has ended"):
        operate.cancel(MART, run=RunId(999))
    assert states(session) == ["waiting"]


def test_cancel_of_a_run_by_hand_leaves_the_task_alone(session: Session) -> None:
    operate.start(MART)
    operate.cancel(MART)
    assert (states(session), quarantined(session)) == (["cancelled", "waiting"], False)


@pytest.mark.parametrize("reason", ["", "  ", "x" * 1001, "a\x00b", "half \ud800"])
def test_a_reason_that_is_none_is_refused(session: Session, reason: str) -> None:
    evaluate()
    with pytest.raises(BadRequest, match="must say why"):
        operate.cancel(MART, reason=reason)
    assert states(session) == ["waiting"]


# Quarantine


def test_release(session: Session, worker: Worker) -> None:  # T22
    register(kit.definition(max_failures=1))
    evaluate()

    def body(_run: Run) -> None:
        raise RuntimeError("no")

    worker.serve(body)
    assert (states(session), state(session), evaluate()) == (["failed"], "quarantined", 0)
    assert operate.release(MART)
    assert not operate.release(MART)
    assert states(session) == ["failed", "waiting"]


def test_forget_does_not_release(session: Session) -> None:
    evaluate()
    operate.cancel(MART)
    operate.forget(MART)
    assert (state(session), states(session)) == ("quarantined", ["cancelled"])


def test_changes_wait_for_one_another(session: Session) -> None:
    """Whoever comes second sees what the first has done."""
    with ThreadPoolExecutor(1) as pool:
        with transaction() as tx:
            endings.lock_task(tx, MART)
            second = pool.submit(operate.rewind, MART, day(1))
            tx.execute(sa.text("insert into tidemill.ctl_seen values (:t, 'dds.orders', 'loaded_to', :v)"), _row(3))
        assert [each.before for each in second.result(60)] == [day(3)]


def _row(number: int) -> dict[str, Any]:
    return {"t": MART, "v": day(number)}


def test_a_removed_task_keeps_what_it_has_seen_and_may_be_rewound(session: Session, worker: Worker) -> None:
    done_with(worker, 10)
    register(kit.definition("shop.marts.other", All(Delay(*ORDERS, "1h"), Delta(*ORDERS, "1d"))))
    operate.rewind(MART, day(5))
    assert (seen(session), states(session)) == (day(5), ["done"])
