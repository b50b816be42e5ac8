"""Operations: chosen once, each item done once with its outcome, whoever dies and however many work them off (R9)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

import processes
from app.audit import Audit
from app.errors import BadRequest, NotFound
from processes.filters import Filters
from recovery import operations
from recovery.operations import Ids, ItemState, Kind, Order, running
from recovery.operations.model import ITEM, OPERATION
from tests.kit import operation_rows as o
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.faults import Crashed, crash_at, pause_at

POINTS = ("operation.turn_taken", "operation.acted", "operation.before_commit", "operation.committed")


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def states_of(operation_id: int) -> list[tuple[int | None, str, str | None]]:
    return [(each.process_id, str(each.state), each.outcome) for each in operations.items(operation_id)]


# What it is over


def test_what_comes_later_is_no_part_of_it(session: Session) -> None:
    there = o.broken(session, 3)
    found = o.over_broken()
    o.broken(session, 2)
    o.work_off()
    assert o.counts(found) == ("DONE", 3, 3, 0, 0)
    assert [(item.process_id, item.number) for item in operations.items(found)] == [(each, 2) for each in there]
    assert {str(r.state(session, each)) for each in there} == {"ACTIVE"}
    assert len(r.rows(session, "SELECT 1 FROM tidemill.broken_task")) == 2
    assert r.check(session) == {}


def test_a_dry_run_counts_and_shows_some_and_writes_nothing(session: Session) -> None:
    there = o.broken(session, 15)
    found = operations.preview(Order(Kind.RESTART_TASK, o.BROKEN))
    assert found.total == 15
    assert [(each.process_id, each.number) for each in found.sample] == [(each, 2) for each in there[:10]]
    assert found.sample[0].says == "toil: Bad: on purpose"
    for table in (OPERATION, ITEM, Audit):
        assert session.execute(sa.select(table)).all() == [], table


def test_the_more_important_come_first_and_then_the_older(session: Session) -> None:
    # R8
    first, second, third = o.broken(session, 3)
    r.execute("UPDATE tidemill.process SET priority = 5 WHERE id = :id", id=third)
    found = operations.start(Order(Kind.ABORT, Filters(name="crowd"), limit=2))
    assert [item.process_id for item in operations.items(found)] == [third, first]
    o.work_off()
    assert str(r.state(session, second)) == "BROKEN"


def test_by_filters_ids_actors_and_tasks(session: Session) -> None:
    one, two = o.broken(session, 2)
    registered = processes.start(w.crowd, [])

    def total(kind: Kind, of: Any, **more: Any) -> int:
        return operations.preview(Order(kind, of, **more)).total

    assert total(Kind.RESTART, Filters()) == 3
    assert total(Kind.RESTART, Filters(custom_id="c2")) == 1
    assert total(Kind.RESTART_TASK, Filters()) == 2
    assert total(Kind.RESTART_TASK, Filters(actor="toil", text="purpose")) == 2
    assert total(Kind.RESTART_TASK, Filters(), actor="crowd") == 2
    assert total(Kind.RESTART_TASK, Ids((one, two)), task=2) == 2
    assert total(Kind.ABORT, Ids((one, registered))) == 2
    with pytest.raises(NotFound, match="there is no process 999"):
        total(Kind.ABORT, Ids((one, 999)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"kind": Kind.ABORT, "of": operations.Named(("x",))}, "abort is of"),
        ({"kind": Kind.ABORT, "of": Ids(())}, "no id is given"),
        ({"kind": Kind.ABORT, "of": Ids((0,))}, "0 is not an id"),
        ({"kind": Kind.RESTART, "of": Filters(), "task": 1}, "begins from no task"),
        ({"kind": Kind.RESTART_TASK, "of": Filters(), "task": 1, "actor": "x"}, "not both"),
        ({"kind": Kind.RESTART, "of": Filters(), "limit": 0}, "limit=0"),
        ({"kind": Kind.RESTART, "of": Filters(), "record": True}, "remembers no run"),
    ],
)
def test_orders_that_make_no_sense(words: dict[str, Any], told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        Order(**words)


@pytest.mark.parametrize("words", [{"rate": "fast"}, {"rate": "1/d"}, {"priority": 40000}, {"reason": ""}])
def test_starts_that_make_no_sense(words: dict[str, Any], session: Session) -> None:
    with pytest.raises(BadRequest):
        o.over_broken(**({"rate": "0.5/d"} if words == {"rate": "1/d"} else words))
    with pytest.raises(BadRequest, match="nothing matches"):
        o.over_broken()
    assert r.rows(session, "SELECT 1 FROM tidemill.operation") == []


# What becomes of the items


def test_one_that_fails_takes_no_other_along(session: Session) -> None:
    there = o.broken(session, 5)
    o.stuck(session, there[2:3])
    found = o.over_broken()
    processes_gone = there[4]
    r.execute("DELETE FROM tidemill.broken_task WHERE process_id = :id", id=processes_gone)
    o.work_off()
    assert o.counts(found) == ("DONE", 5, 3, 1, 1)
    outcomes = {process_id: (state, says) for process_id, state, says in states_of(found)}
    assert outcomes[there[0]] == ("DONE", "restarted")
    assert outcomes[there[2]][0] == "FAILED"
    assert f"process {there[2]} is stuck" in (outcomes[there[2]][1] or "")
    assert outcomes[there[4]] == ("SKIPPED", "the task is not broken any more")
    assert str(r.state(session, there[2])) == "BROKEN"
    assert [(str(each.state), each.count) for each in operations.outcomes(found)] == [
        ("DONE", 3),
        ("FAILED", 1),
        ("SKIPPED", 1),
    ]
    [failed] = operations.items(found, states=[ItemState.FAILED])
    assert failed.process_id == there[2]


def test_those_that_failed_are_tried_again(session: Session) -> None:
    there = o.broken(session, 4)
    o.stuck(session, there[:2])
    first = o.over_broken(priority=3)
    with pytest.raises(BadRequest, match="still runs"):
        operations.retry(first)
    o.work_off()
    o.free(session)
    second = operations.retry(first, rate=None, reason="mended")
    with pytest.raises(BadRequest, match=f"operation {second} tries them again"):
        operations.retry(first)
    o.work_off()
    assert o.counts(second) == ("DONE", 2, 2, 0, 0)
    assert [item.process_id for item in operations.items(second)] == there[:2]
    told = operations.show(second)
    assert (told.retry_of, told.priority, told.parameters) == (first, 3, {"broken": True})
    assert o.epochs(session) == []
    with pytest.raises(BadRequest, match="has failed"):
        operations.retry(second)


def test_processes_are_aborted_and_restarted_from_their_start(session: Session) -> None:
    there = o.broken(session, 3)
    operations.start(Order(Kind.ABORT, o.BROKEN), rate=None, reason="twice")
    o.work_off()
    assert {(str(r.process(session, each).state), r.process(session, each).error) for each in there} == {
        ("ABORTED", "aborted: twice")
    }
    again = operations.start(Order(Kind.ABORT, o.BROKEN), rate=None)
    o.work_off()
    assert o.counts(again) == ("DONE", 3, 0, 0, 3)
    operations.start(Order(Kind.RESTART, o.BROKEN), rate=None)
    o.work_off()
    r.serve("crowd", "toil")
    assert {str(r.state(session, each)) for each in there} == {"FINISHED"}
    assert r.check(session) == {}


@pytest.mark.parametrize("words", [{"task": 2}, {"actor": "toil"}])
def test_from_a_task_that_need_not_be_broken(words: dict[str, Any], session: Session) -> None:
    there = o.broken(session, 2)
    o.over_broken()
    o.work_off()
    r.serve("toil")
    # What finished goes on.
    found = operations.start(Order(Kind.RESTART_TASK, Filters(), **words), rate=None)
    o.work_off()
    assert o.counts(found) == ("DONE", 2, 2, 0, 0)
    assert {str(r.task(session, each, 2).state) for each in there} == {"READY"}
    assert {str(r.task(session, each, 1).state) for each in there} == {"FINISHED"}
    r.serve("toil")
    assert r.unfinished(session) == 0
    assert r.check(session) == {}


def test_processes_are_checked_and_then_put_right(session: Session) -> None:
    """R7, R8: what is wrong is found and not touched; then it is repaired, and the record says on whose wish."""
    well, wrong, gone = o.broken(session, 3)
    r.execute("UPDATE tidemill.graph SET unfinished = 2 WHERE process_id = :id", id=wrong)
    order = Filters(name="crowd")
    looked = operations.start(Order(Kind.CHECK, order), rate=None)
    mended = operations.start(Order(Kind.RECOVER, order), rate=None, priority=-1)
    for table in ("broken_task", "decision", "edge", "task", "graph"):
        r.execute(f"DELETE FROM tidemill.{table} WHERE process_id = :id", id=gone)  # noqa: S608
    r.execute("DELETE FROM tidemill.process WHERE id = :id", id=gone)
    running.run_once()
    assert states_of(looked) == [
        (well, "DONE", "well: task_broken"),
        (wrong, "DONE", "wrong: wrong_counts"),
        (gone, "SKIPPED", "it is not there any more"),
    ]
    assert r.check(session) != {}
    o.work_off()
    assert [(state, outcome) for _, state, outcome in states_of(mended)] == [
        ("DONE", "well: task_broken"),
        ("DONE", "repaired: wrong_counts; well: task_broken"),
        ("SKIPPED", "it is not there any more"),
    ]
    assert r.check(session) == {}
    repairs = r.rows(session, "SELECT subject, finding, operation_id FROM tidemill.repair")
    assert [tuple(row) for row in repairs] == [(str(wrong), "wrong_counts", mended)]


def test_one_that_somebody_changes_just_now_is_left_to_the_next_batch(session: Session, engine: Engine) -> None:
    one, two = o.broken(session, 2)
    found = operations.start(Order(Kind.RECOVER, Filters(name="crowd")), rate=None)
    with engine.begin() as connection:
        connection.execute(sa.text("SELECT 1 FROM tidemill.graph WHERE process_id = :id FOR UPDATE"), {"id": one})
        assert [report.done for report in o.work_off()] == [1, 0]
    assert [item.process_id for item in operations.items(found, states=[ItemState.DONE])] == [two]
    o.work_off()
    assert o.counts(found) == ("DONE", 2, 2, 0, 0)


# Whoever dies, and however many there are


@pytest.mark.parametrize("point", POINTS)
def test_whoever_dies_leaves_an_item_waiting_or_done(point: str, session: Session) -> None:
    o.broken(session, 25)
    found = o.over_broken()
    with crash_at(point, 2), pytest.raises(Crashed):
        o.work_off(10)
    ended = operations.show(found).ended
    assert ended == (20 if point == "operation.committed" else 10)
    assert len(r.rows(session, "SELECT 1 FROM tidemill.operation_item WHERE state <> 'WAITING'")) == ended
    assert len(r.rows(session, "SELECT 1 FROM tidemill.decision WHERE number = 2 AND epoch = 1")) == ended
    o.work_off(10)
    assert o.counts(found) == ("DONE", 25, 25, 0, 0)
    assert o.epochs(session) == []
    assert r.check(session) == {}


def test_several_do_each_item_once(session: Session) -> None:
    o.broken(session, 200)
    found = o.over_broken()
    together = threading.Barrier(4)

    def service(_: int) -> int:
        together.wait(60)
        done = 0
        while operations.show(found).ended_at is None:
            done += running.run_once(7).done
        return done

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(service, range(4)))
    assert sum(done) == 200
    assert o.counts(found) == ("DONE", 200, 200, 0, 0)
    assert o.epochs(session) == []


def test_another_one_passes_over_what_is_being_done(session: Session) -> None:
    there = o.broken(session, 4)
    found = o.over_broken()
    with pause_at("operation.acted") as paused, ThreadPoolExecutor(1) as threads:
        first = threads.submit(running.run_once, 2)
        paused.wait(60)
        assert running.run_once(2).done == 2
        done = [item.process_id for item in operations.items(found, states=[ItemState.DONE])]
        assert done == there[2:]
        # It is not over before the other one has committed.
        assert operations.show(found).ended_at is None
        paused.go_on()
        assert first.result(60).done == 2
    assert o.counts(found) == ("DONE", 4, 4, 0, 0)


def test_the_database_refuses_senseless_operations(session: Session) -> None:
    o.broken(session, 1)
    o.over_broken()
    for change in (
        sa.update(OPERATION).values(done=2),
        sa.update(OPERATION).values(state="DONE"),
        sa.update(ITEM).values(process_id=None),
    ):
        with pytest.raises(IntegrityError), session.begin_nested():
            session.execute(change)
