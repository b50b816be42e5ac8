"""Registering a process, and beginning it (P2)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import processes
from app.db import transaction
from app.errors import BadRequest, NotDeclared, NotJson, TooLarge
from processes import operate, starting
from processes.flow import Flow
from processes.states import ProcessState
from recovery import processes as late_processes
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.faults import crash_at, pause_at, recording
from tests.kit.waiting import wait_until


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def ids(session: Session) -> list[int]:
    return [row.id for row in r.rows(session, "SELECT id FROM tidemill.process ORDER BY id")]


def test_only_the_row_is_written(session: Session) -> None:
    # P2: everything else can be made from it.
    process_id = processes.start(w.journey, 1, custom_id="c-1", attributes={"shop": 7}, priority=3)
    row = r.process(session, process_id)
    assert (row.state, row.name, row.custom_id, row.attributes, row.priority) == (
        *("REGISTERED", "journey", "c-1", {"shop": 7}),
        3,
    )
    assert row.arguments == {"args": [1], "kwargs": {}}
    assert row.recovery_time is not None, "recovery begins it if nobody does"
    for table in ("graph", "task", "edge", "decision"):
        assert r.rows(session, f"SELECT * FROM tidemill.{table}") == []  # noqa: S608
    assert r.check(session) == {}


def test_it_joins_the_transaction_of_its_caller(session: Session) -> None:
    # P2
    with suppress(RuntimeError), transaction() as tx:
        processes.start(w.journey, 1, session=tx)
        raise RuntimeError
    assert ids(session) == []
    with recording() as points, transaction() as tx:
        process_id = processes.start(w.journey, 1, session=tx)
        assert ids(session) == []
        assert points.reached == [], "nobody is told of what may never be"
    assert ids(session) == [process_id]
    assert points.reached[:2] == ["enqueue.before_commit", "enqueue.committed"]


def test_a_savepoint_that_is_rolled_back_leaves_nothing(session: Session) -> None:
    with transaction() as tx:
        kept = processes.start(w.journey, 1, session=tx)
        nested = tx.begin_nested()
        processes.start(w.journey, 2, session=tx)
        nested.rollback()
    assert ids(session) == [kept]


def test_any_session_of_sqlalchemy_will_do(session: Session, engine: Engine) -> None:
    scoped = scoped_session(sessionmaker(engine))
    first = processes.start(w.journey, 1, session=scoped)
    scoped.commit()
    scoped.remove()
    with Session(engine) as own:
        second = processes.start(w.journey, 2, session=own)
        own.commit()
    with engine.begin() as connection, Session(connection) as bound:
        third = processes.start(w.journey, 3, session=bound)
        bound.commit()
    assert ids(session) == [first, second, third]


@pytest.mark.parametrize("wrong", [object(), "session", 0, sessionmaker()])
def test_what_is_no_session_is_refused(wrong: Any, session: Session) -> None:
    with pytest.raises(BadRequest, match="session must be"):
        processes.start(w.journey, 1, session=wrong)
    assert ids(session) == []


def test_a_connection_is_no_session(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(BadRequest, match="not Connection"):
        processes.start(w.journey, 1, session=connection)  # type: ignore[arg-type]


# With an idempotency key.


def test_registering_again_returns_what_is_there(session: Session) -> None:
    # P2
    first = processes.start(w.journey, 1, idempotency_key="k")
    assert processes.start(w.journey, 2, idempotency_key="k") == first
    with transaction() as tx:
        assert processes.start(w.journey, 3, idempotency_key="k", session=tx) == first
    assert r.process(session, first).arguments == {"args": [1], "kwargs": {}}
    r.serve("journey")
    assert processes.start(w.journey, 1, idempotency_key="k") == first, "also when it has finished"
    assert ids(session) == [first]


def test_a_key_is_that_of_a_type(session: Session) -> None:
    first = processes.start(w.journey, 1, idempotency_key="k")
    second = processes.start(w.crowd, [], idempotency_key="k")
    third = processes.start(w.journey, 1, idempotency_key="K")
    assert ids(session) == [first, second, third]


def test_a_key_that_was_rolled_back_is_free(session: Session) -> None:
    with suppress(RuntimeError), transaction() as tx:
        processes.start(w.journey, 1, idempotency_key="k", session=tx)
        raise RuntimeError
    found = processes.start(w.journey, 2, idempotency_key="k")
    assert r.process(session, found).arguments["args"] == [2]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_two_at_once(end: str, session: Session, engine: Engine) -> None:
    # P2: the second waits for the first, and returns it, or is the only one.
    found: list[int] = []
    with Session(engine) as one:
        first = processes.start(w.journey, 1, idempotency_key="k", session=one)
        thread = threading.Thread(target=lambda: found.append(processes.start(w.journey, 2, idempotency_key="k")))
        thread.start()
        wait_until(lambda: r.waits_for_a_lock(session))
        getattr(one, end)()
    thread.join(60)
    assert ids(session) == found
    assert (found == [first]) == (end == "commit")
    assert r.process(session, found[0]).arguments["args"] == [1 if end == "commit" else 2]


# What makes no sense.


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"custom_id": ""}, "custom_id"),
        ({"custom_id": " "}, "custom_id"),
        ({"custom_id": 7}, "custom_id"),
        ({"custom_id": "a\x00b"}, "custom_id"),
        ({"custom_id": "\ud800"}, "custom_id"),
        ({"custom_id": "x" * 501}, "custom_id is 501 characters"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"idempotency_key": b"k"}, "idempotency_key"),
        ({"idempotency_key": "x" * 501}, "idempotency_key is 501"),
        ({"attributes": []}, "attributes"),
        ({"attributes": "shop"}, "attributes"),
        ({"attributes": {1: 2}}, "text as keys"),
        ({"attributes": {"at": object()}}, "no JSON form"),
        ({"attributes": {"at": float("nan")}}, "no JSON form"),
        ({"attributes": {"at": "\x00"}}, "NUL"),
        ({"attributes": {"a\x00": 1}}, "NUL"),
        ({"attributes": {"at": "\ud800"}}, "no JSON form"),
        ({"attributes": {"at": "x" * 70_000}}, "more than 65536"),
        ({"priority": 40_000}, "priority"),
        ({"priority": -40_000}, "priority"),
        ({"priority": 1.0}, "priority"),
        ({"priority": True}, "priority"),
        ({"kwargs": {"number": 2}}, "cannot be called so"),
        ({"kwargs": {"nobody": 2}}, "cannot be called so"),
    ],
)
def test_words_that_make_no_sense(words: dict[str, Any], why: str, session: Session) -> None:
    with pytest.raises(BadRequest, match=why):
        processes.start(w.journey, 1, **words)
    assert ids(session) == []


@pytest.mark.parametrize("priority", [-32767, 32767])
def test_the_bounds_of_priorities_hold(priority: int, session: Session) -> None:
    found = r.begin(processes.start(w.journey, 1, priority=priority))
    assert r.decision(session, found, 1).rank == -priority


def test_attributes_that_only_speak_of_nul(session: Session) -> None:
    found = processes.start(w.journey, 1, attributes={"text": "\\u0000"})
    assert r.process(session, found).attributes == {"text": "\\u0000"}


@pytest.mark.parametrize(
    "argument", [object(), float("nan"), float("inf"), b"b", {1}, "\ud800", {"a": {"b": object()}}]
)
def test_arguments_that_are_no_json(argument: Any, session: Session) -> None:
    with pytest.raises(NotJson, match="journey"):
        processes.start(w.journey, argument)
    assert ids(session) == []


def test_arguments_that_are_too_large_or_endless(session: Session) -> None:
    with pytest.raises(TooLarge, match="journey"):
        processes.start(w.journey, "x" * 1_100_000)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BadRequest, match="contain themselves"):
        processes.start(w.journey, endless)
    assert ids(session) == []


def test_promises_belong_to_a_process(session: Session) -> None:
    flow = Flow()
    promise = flow.call(w.stride, 1)
    for wrong in (promise, [promise], {"a": promise}, flow.no_wait(promise)):
        with pytest.raises(BadRequest, match="belongs to another process"):
            processes.start(w.journey, wrong)
    assert ids(session) == []


@pytest.mark.parametrize("wrong", [len, print, 7, None, object(), Flow, lambda: 1])
def test_what_is_no_decider(wrong: Any, session: Session) -> None:
    with pytest.raises(BadRequest, match="neither an actor nor a decider"):
        processes.start(wrong)
    assert ids(session) == []


def test_actors_begin_no_process(session: Session) -> None:
    for wrong in (w.stride, "stride"):
        with pytest.raises(BadRequest, match="an actor: a process begins with"):
            processes.start(wrong, 1)
    for unknown in ("nobody", "", "x\ud800", "x\x00", "x" * 1000):
        with pytest.raises(NotDeclared, match="known to no worker"):
            processes.start(unknown)
    assert ids(session) == []


def test_by_its_name(session: Session) -> None:
    found = processes.start("journey", 1, kwargs={})
    assert r.process(session, found).name == "journey"
    with pytest.raises(BadRequest, match="cannot be called so"):
        processes.start("journey", 1, 2)


# Beginning it.


def test_it_is_begun_once(session: Session) -> None:
    # P2
    found = processes.start(w.journey, 1)
    assert starting.run_once().begun == 1
    assert starting.run_once().begun == 0
    assert r.state(session, found) is ProcessState.ACTIVE
    assert r.tasks(session, found) == {1: "READY"}
    assert r.check(session) == {}


def test_at_most_so_many(session: Session) -> None:
    for number in range(5):
        processes.start(w.journey, number)
    report = starting.run_once(2)
    assert (report.begun, report.more) == (2, True)
    assert starting.run_once(10, name="crowd").begun == 0
    report = starting.run_once(10, name="journey")
    assert (report.begun, report.more) == (3, False)


def test_a_worker_that_serves_its_decider_begins_it(session: Session) -> None:
    found = processes.start(w.journey, 1)
    r.serve("journey")
    assert r.process(session, found).value == w.value_of(1)
    assert len(r.tasks(session, found)) == w.JOURNEY_TASKS
    assert r.check(session) == {}


def test_a_worker_of_others_does_not(session: Session) -> None:
    found = processes.start(w.journey, 1)
    r.serve("stride", "crowd")
    assert r.state(session, found) is ProcessState.REGISTERED


def test_the_sweep_begins_what_was_never_begun(session: Session) -> None:
    # R5
    found = processes.start(w.journey, 1)
    assert late_processes.run_once().begun == 1
    r.serve("journey")
    assert r.process(session, found).value == w.value_of(1)


def test_a_deadline_does_not_break_what_was_never_begun(session: Session) -> None:
    # P7: nobody could restart it. First it is begun, then its time is over.
    with r.actors(short, process_timeout="1s"):
        found = [processes.start(short) for _ in range(3)]
        r.let_pass("deadline_at", table="process")
        r.execute("UPDATE tidemill.process SET recovery_time = now() - id * interval '1 hour'")
        for _ in range(3):
            late_processes.run_once(limit=1)
        late_processes.run_once()
        assert [r.state(session, each) for each in found] == [ProcessState.BROKEN] * 3
        assert r.check(session) == {}
        r.serve("short")
    assert [r.state(session, each) for each in found] == [ProcessState.FINISHED] * 3


def short(flow: Any) -> str:
    return "done"


def test_two_begin_at_once(session: Session) -> None:
    # P2: what one begins the other leaves alone.
    found = processes.start(w.journey, 1)
    with pause_at("process.before_begin") as paused:
        thread = threading.Thread(target=starting.run_once)
        thread.start()
        paused.wait()
        assert starting.run_once().begun == 0
        paused.go_on()
        thread.join(60)
    assert r.tasks(session, found) == {1: "READY"}
    assert r.check(session) == {}


@pytest.mark.parametrize("point", ["process.before_begin", "process.begun"])
def test_a_beginning_that_is_cut_off(point: str, session: Session) -> None:
    # P2: all of it, or nothing.
    found = processes.start(w.journey, 1)
    with crash_at(point), pytest.raises(BaseException, match=point):
        starting.run_once()
    assert r.state(session, found) is (ProcessState.ACTIVE if point == "process.begun" else ProcessState.REGISTERED)
    assert r.check(session) == {}
    starting.run_once()
    r.serve("journey")
    assert r.process(session, found).value == w.value_of(1)


def test_an_abortion_of_what_is_being_begun_waits_for_it(session: Session) -> None:
    found = processes.start(w.journey, 1)
    with pause_at("process.before_begin") as paused:
        threads = [threading.Thread(target=starting.run_once), threading.Thread(target=lambda: operate.abort(found))]
        threads[0].start()
        paused.wait()
        threads[1].start()
        wait_until(lambda: r.waits_for_a_lock(session))
        paused.go_on()
        for thread in threads:
            thread.join(60)
    assert r.state(session, found) is ProcessState.ABORTED
    assert r.tasks(session, found) == {1: "ABORTED"}
    assert r.serve("journey") == 0
    assert r.check(session) == {}
