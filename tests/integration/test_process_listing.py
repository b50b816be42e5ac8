"""What is told of processes and actors: one process, waiting for its end, and by which indexes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import figures
from app.errors import BadRequest, NotFound
from processes import Failure, ProcessState, TaskState, listing, operate, outside, search, show, start, wait
from processes.model import ANSWER, PROCESS
from processes.showing import load, one_moment
from processes.states import DecisionState
from tests.kit import plans
from tests.kit.cli import live_worker
from tests.kit.clock import FakeClock
from tests.kit.plans import captured
from tests.kit.process_kiosk import declare, kiosk_order, kiosk_print, kiosk_value, server, work

NUL = "a\x00b"


@pytest.fixture(autouse=True)
def _declared(session: Session, broker_url: str) -> None:
    declare()


def ids(**filters: Any) -> list[int]:
    return [each.id for each in search(**filters)]


# One process


def test_a_process_is_shown_with_its_tasks() -> None:
    # P8: the value is that of the task whose promise the decider has returned.
    process_id = start(kiosk_order, "o-1", custom_id="mine", attributes={"shop": "7"}, priority=3)
    before = show(process_id)
    assert (before.state, before.tasks, before.value, before.begun_at) == (ProcessState.REGISTERED, (), None, None)
    work()
    found = show(process_id)
    assert (found.state, found.value, found.error) == (ProcessState.FINISHED, "mailed paid-o-1 packed-o-1", None)
    assert (found.custom_id, found.attributes, found.priority) == ("mine", {"shop": "7"}, 3)
    assert found.registered_at <= (found.begun_at or found.at) <= (found.ended_at or found.registered_at) <= found.at
    assert [(task.number, task.actor, task.created_by) for task in found.tasks] == [
        (1, "kiosk_order", None),
        (2, "kiosk_pay", 1),
        (3, "kiosk_pack", 1),
        (4, "kiosk_mail", 1),
    ]
    assert {task.state for task in found.tasks} == {TaskState.FINISHED}
    assert [task.sources for task in found.tasks] == [(), (), (2,), (2, 3)]
    assert [task.value_of for task in found.tasks] == [4, None, None, None]
    assert [task.value for task in found.tasks] == [None, "paid-o-1", "packed-o-1", found.value]
    assert found.tasks[3].args == [{"$value": 2}, {"$value": 3}]
    assert all(task.ready_at and task.claimed_at and task.ended_at for task in found.tasks)
    assert {task.worker for task in found.tasks} == {"here@test/1"}


def test_what_failed_is_shown_with_its_attempts() -> None:
    # P5, P9: an accepted failure, an attempt that is made again, and one that broke its task.
    accepted, again, broken = (start(kiosk_order, *args) for args in (("x", -1), ("late",), ("x", "many")))
    work()
    paid = show(accepted).tasks[1]
    assert (paid.state, paid.failed, paid.value) == (
        *(TaskState.FINISHED, True),
        Failure("Declined", "no money for x"),
    )
    packed = show(again).tasks[2]
    assert (packed.state, packed.decision, packed.failures) == (TaskState.READY, DecisionState.QUEUED, 1)
    assert packed.due_at is not None
    assert packed.due_at > datetime.now(UTC)
    assert [(each.refused, each.error) for each in packed.answers] == [(None, "TimeoutError: no answer from the store")]
    found = show(broken)
    assert (found.state, found.tasks[1].state) == (ProcessState.BROKEN, TaskState.BROKEN)
    assert found.tasks[1].broken is not None
    assert found.tasks[1].broken.type == "TypeError"
    assert "Traceback" in (found.tasks[1].broken.traceback or "")
    assert (found.error or "").startswith("task 2, kiosk_pay: TypeError: ")


def test_who_works_on_a_task_and_what_was_refused() -> None:
    process_id = start(kiosk_value, 1, True)
    work()
    [handed] = outside.poll("kiosk_print", worker="printer-1")
    printing = show(process_id).tasks[1]
    assert (printing.decision, printing.worker, printing.until) == (DecisionState.WORK, "printer-1", handed.until)
    answer: dict[str, Any] = {"pass_key": handed.pass_key, "epoch": handed.epoch, "worker": "printer-1"}
    for value in ("first", "second"):
        outside.release(process_id, 2, value=value, **answer)
    printed = show(process_id).tasks[1]
    assert (printed.value, printed.worker, printed.until) == ("first", "printer-1", None)
    assert [each.refused for each in printed.answers] == ["the process is FINISHED"]


def test_of_many_answers_the_latest_are_read(session: Session) -> None:
    process_id = start(kiosk_value, "x" * 5000)
    work()
    rows = [{"process_id": process_id, "number": 1, "refused": f"{each}"} for each in range(50)]
    session.execute(sa.insert(ANSWER), rows)
    session.commit()
    found = load(session, process_id, answers=3, text=100)
    assert ([each.refused for each in found.tasks[0].answers], found.tasks[0].answered) == (["47", "48", "49"], 50)
    assert (len(found.tasks[0].result or ""), len(found.result or "")) == (100, 100)
    assert [len(task.answers) for task in show(process_id).tasks] == [50]


def test_everything_shown_is_of_one_moment(session: Session, engine: Engine) -> None:
    # Between the statements of one look, somebody restarts the process.
    process_id = start(kiosk_order, "o-1")
    work()
    with captured(engine) as statements, one_moment() as looking:
        looking.execute(sa.select(1).select_from(PROCESS).limit(1))
        operate.restart(process_id)
        assert session.execute(sa.select(PROCESS.c.state)).scalar_one() == ProcessState.ACTIVE
        found = load(looking, process_id)
    assert (found.state, len(found.tasks)) == (ProcessState.FINISHED, 4)
    assert len(statements) > 3
    assert len(show(process_id).tasks) == 1


@pytest.mark.parametrize("process_id", [0, -1, 2**63, 10**400, True, "1", None, 1.0, 404])
def test_ids_that_there_are_not(process_id: Any) -> None:
    for ask in (show, wait):
        with pytest.raises(NotFound, match="there is no process") as caught:
            ask(process_id)
        assert len(str(caught.value)) < 300


# Waiting


def test_wait_says_how_it_ended() -> None:
    ended, broken, aborted = (start(kiosk_order, *args) for args in (("o-1",), ("x", "many"), ("late",)))
    work()
    operate.abort(aborted, reason="enough")
    told = [wait(each, 0) for each in (ended, broken, aborted)]
    assert [(each.state, each.value) for each in told] == [
        (ProcessState.FINISHED, "mailed paid-o-1 packed-o-1"),
        (ProcessState.BROKEN, None),
        (ProcessState.ABORTED, None),
    ]
    assert [each.error for each in told][::2] == [None, "aborted: enough"]


def test_wait_ends_when_the_process_does() -> None:
    process_id = start(kiosk_value, {"a": 1})
    working = threading.Thread(target=work)
    working.start()
    try:
        assert wait(process_id, timedelta(seconds=60)).value == {"a": 1}
    finally:
        working.join()


def test_wait_gives_up_in_time() -> None:
    process_id, clock = start(kiosk_value, 1), FakeClock()
    with pytest.raises(TimeoutError, match="is still REGISTERED after 30 s"):
        wait(process_id, clock=clock)
    for nonsense in (-1, float("nan"), "soon", None, True):
        with pytest.raises(BadRequest, match="timeout="):
            wait(process_id, nonsense)  # type: ignore[arg-type]


MANY = sa.text(
    """
    insert into tidemill.process (name, state, custom_id, arguments, begun_at, ended_at)
    select 'kiosk_order', 'FINISHED', 'c-' || i, '{}', now(), now() - interval '1 day' from generate_series(1, 20000) i
    """
)


# Actors


def named(session: Session) -> dict[str, listing.Listed]:
    session.rollback()
    return {each.name: each for each in listing.actors(session)}


def test_actors_are_listed_with_their_tasks(session: Session) -> None:
    for args in (("late",), ("x", "many")):
        start(kiosk_order, *args)
    start(kiosk_value, 1, True)
    work()
    with live_worker("actor.kiosk_pay", slots=4):
        found = named(session)
    assert list(found) == sorted(found)
    pack, pay, printer = (found[name] for name in ("kiosk_pack", "kiosk_pay", "kiosk_print"))
    assert (pack.ready, pack.later, pack.in_work, pack.broken) == (0, 1, 0, 0)
    assert (pay.ready, pay.broken, pay.slots, pay.decider) == (0, 1, 4, False)
    assert (printer.ready, printer.outside, printer.oldest is None) == (1, True, False)
    assert (found["kiosk_order"].decider, found["kiosk_order"].queue) == (True, "actor.kiosk_order")
    outside.poll("kiosk_print", worker="p")
    assert (named(session)["kiosk_print"].ready, named(session)["kiosk_print"].in_work) == (0, 1)


def test_actors_that_are_gone_are_listed_while_tasks_of_them_are_left(session: Session) -> None:
    start(kiosk_value, 1, True)
    work()
    session.execute(sa.text("update tidemill.actor_preferences set removed_at = now()"))
    session.commit()
    assert list(named(session)) == [kiosk_print.__name__]
    assert [each.name for each in listing.actors(session, "kiosk_pay")] == ["kiosk_pay"]


DONE = sa.text(
    """
    insert into tidemill.decision (process_id, number, state, queue)
    select 1, i, 'FINISH', 'actor.kiosk_pack' from generate_series(1, 20000) i
    """
)


def test_counting_reads_nothing_that_is_done(session: Session, engine: Engine) -> None:
    session.execute(DONE)
    session.execute(MANY)
    session.commit()
    start(kiosk_order, "late")
    work()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("vacuum analyze"))
    with captured(engine) as statements:
        found = listing.actors(session)
        figures.processes(session, found)
        figures.queues(session)
    session.rollback()
    reading = [each for each in statements if each.text.lstrip().startswith(("SELECT", "WITH"))]
    assert len(reading) > 5
    for each in reading:
        assert not {"decision", "process", "task"} & plans.explain(engine, each).read_whole(), each.text


def test_looking_waits_for_nobody(session: Session, engine: Engine) -> None:
    process_id = start(kiosk_order, "late")
    work()
    looks: list[Callable[[], object]] = [
        lambda: show(process_id),
        lambda: search(actor="kiosk_pack"),
        lambda: named(session),
    ]
    with engine.begin() as other:
        for name in ("process", "graph", "task", "decision"):
            other.execute(sa.text(f"lock table tidemill.{name} in exclusive mode"))
        for look in looks:
            assert look()
    assert server().serve("actor.nobody", 1) == (0, False)
