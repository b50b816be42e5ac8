"""What an outside actor does over HTTP: poll, heartbeat, release (P10)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.console.server import Server
from app.settings import settings
from app.tokens import store
from processes import operate, preferences
from processes.model import DECISION, Process
from recovery import decisions
from tests.kit import console, outside_world
from tests.kit.console import Caller, answer, poll_path
from tests.kit.outside_world import asking, finished
from tests.kit.waiting import wait_until


@pytest.fixture
def url(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    # For so long after its start, nothing is taken back (R6).
    monkeypatch.setenv("TIDEMILL_LEASE", "1s")
    settings.cache_clear()
    outside_world.make_known()
    with console.serving() as found:
        yield found


@pytest.fixture
def caller(url: str) -> Caller:
    return Caller(url, console.token())


def taken_back(session: Session, task: Any) -> None:
    """As if its work timeout were over."""
    mine = (DECISION.c.process_id == task["process_id"], DECISION.c.number == task["task"])
    session.execute(sa.update(DECISION).where(*mine).values(recovery_time=sa.func.now() - timedelta(seconds=5)))
    session.commit()
    wait_until(lambda: _swept(session, task), 60, "it is taken back")


def _swept(session: Session, task: Any) -> bool:
    """Whether a sweep has put it back."""
    decisions.run_once()
    session.rollback()
    query = sa.select(DECISION.c.state).where(
        DECISION.c.process_id == task["process_id"], DECISION.c.number == task["task"]
    )
    return str(session.execute(query).scalar_one()) == "QUEUED"


def test_the_whole_way(caller: Caller, session: Session) -> None:  # P10
    process_id = asking("o-1", [1, {"ä": None}], amount=3)
    (task,) = caller.poll("answer_outside", limit=5)
    assert (task["process_id"], task["actor"], task["attempt"]) == (process_id, "answer_outside", 1)
    assert (task["args"], task["kwargs"]) == (["o-1", [1, {"ä": None}]], {"amount": 3})
    assert task["custom_id"] is None
    assert 50 < task["remaining"] <= 60
    said = caller.heartbeat(task)
    assert said.status == 200
    assert datetime.fromisoformat(said.data["until"]) > datetime.fromisoformat(task["until"])
    said = caller.release(task, value={"by": "me", "€": "\x00"})
    assert (said.status, said.data) == (200, {"outcome": "accepted", "why": None})
    assert finished(session, process_id) == {"value": {"by": "me", "€": "\x00"}}
    # P5: the same once more, as after an answer that got lost.
    said = caller.release(task, value=1)
    assert said.status == 409
    assert (said.data["outcome"], said.data["error"]["code"]) == ("refused", "refused")
    assert said.data["why"] == said.data["error"]["message"] == "the process is FINISHED"


def test_errors_are_tried_again_accepted_or_break_the_task(caller: Caller, session: Session) -> None:  # P9
    process_id = asking("x")
    (task,) = caller.poll("answer_outside")
    said = caller.release(task, error={"type": "Odd", "message": "no", "traceback": "line 1"})
    assert (said.status, said.data["outcome"]) == (200, "again")
    assert said.data["why"] == "it is tried again in 1 s"
    (task,) = caller.poll("answer_outside", wait="60s")
    assert task["attempt"] == 2
    said = caller.release(task, error={"type": "Declined", "message": "too much"})
    assert (said.status, said.data["outcome"]) == (200, "accepted")
    assert finished(session, process_id) == {"failed": "Declined", "why": "too much"}
    broken = asking("y")
    (task,) = caller.poll("answer_outside")
    said = caller.release(task, error={"type": "Odd", "final": True})
    assert (said.status, said.data["outcome"]) == (200, "broken")
    assert session.get_one(Process, broken).state == "BROKEN"


def test_a_result_that_comes_late(caller: Caller, session: Session) -> None:  # P5
    first = asking("accept first")
    (late,) = caller.poll("answer_outside")
    taken_back(session, late)
    assert caller.heartbeat(late).error[0] == "claim_lost"
    assert caller.heartbeat(late).status == 409
    (again,) = caller.poll("answer_outside", wait="60s")
    assert again["pass_key"] != late["pass_key"]
    assert again["idempotency_key"] == late["idempotency_key"]
    # The first result counts, whichever hand-out it is from.
    assert caller.release(late, value="late").data["outcome"] == "accepted"
    assert caller.release(again, value="again").status == 409
    assert finished(session, first) == {"value": "late"}
    preferences.configure("answer_outside", {"accept_first": False})
    second = asking("only the present one")
    (late,) = caller.poll("answer_outside")
    taken_back(session, late)
    (again,) = caller.poll("answer_outside", wait="60s")
    said = caller.release(late, value="late")
    assert (said.status, said.data["why"]) == (409, "the task was handed out again since")
    said = caller.release(late, error={"type": "Odd"})
    assert (said.status, said.data["outcome"]) == (409, "refused")
    assert caller.release(again, value="again").status == 200
    assert finished(session, second) == {"value": "again"}


def test_a_pass_that_was_never_given_is_refused(caller: Caller, session: Session) -> None:  # P5
    process_id = asking("x")
    (task,) = caller.poll("answer_outside")
    said = caller.release({**task, "pass_key": str(uuid.UUID(int=0))}, value="made up")
    assert (said.status, said.data["why"]) == (409, "the task was handed out once, and not with this pass")
    assert caller.release(task, value="mine").status == 200
    assert finished(session, process_id) == {"value": "mine"}


def test_after_a_restart_by_an_operator_the_old_epoch_counts_no_more(caller: Caller, session: Session) -> None:
    process_id = asking("x")
    (task,) = caller.poll("answer_outside")
    operate.restart(process_id, task["task"], reason="test")
    said = caller.release(task, value=1)
    assert (said.status, said.data["why"]) == (409, "an operator has restarted the task since it was handed out")
    outside_world.work()
    (task,) = caller.poll("answer_outside", wait="60s")
    assert caller.release(task, value=2).status == 200
    assert finished(session, process_id) == {"value": 2}


def test_two_never_get_the_same_task(url: str) -> None:
    made = {asking(number) for number in range(40)}
    callers = [Caller(url, console.token(f"worker-{number}")) for number in range(4)]

    def all_of(caller: Caller) -> list[int]:
        found: list[int] = []
        while tasks := caller.poll("answer_outside", limit=3):
            found += [each["process_id"] for each in tasks]
        return found

    with ThreadPoolExecutor(4) as pool:
        found = [each for mine in pool.map(all_of, callers) for each in mine]
    assert sorted(found) == sorted(made)


def test_a_poll_waits_for_what_becomes_ready(caller: Caller, session: Session) -> None:
    with ThreadPoolExecutor(1) as pool:
        polling = pool.submit(caller.poll, "answer_outside", wait="60s")
        process_id = asking("later")
        (task,) = polling.result(60)
    assert task["process_id"] == process_id
    assert caller.poll("answer_outside", wait="600ms") == []


def test_a_poll_that_waits_hands_out_nothing_once_its_token_is_revoked(url: str, session: Session) -> None:
    caller = Caller(url, console.token(name="leaked"))
    with ThreadPoolExecutor(1) as pool:
        # Believed for a moment from now on: the next one is let in.
        assert caller.poll("answer_outside") == []
        polling = pool.submit(caller.post, poll_path("answer_outside"), {"wait": "60s"})
        store.revoke(session, "leaked")
        session.commit()
        said = polling.result(60)
    assert (said.status, said.error[0]) == (401, "unauthenticated")


def test_polls_that_wait_hold_no_thread_and_no_connection(engine: Engine) -> None:
    outside_world.make_known()
    with console.serving(threads=1) as url:
        caller = Caller(url, console.token())
        waiting = [caller.connect() for _ in range(30)]
        for each in waiting:
            caller.send(each, poll_path("answer_outside"), {"wait": "60s"})
        # The one thread is free for others all the while.
        made = {asking(number) for number in range(30)}
        found = [answer(each).data["tasks"][0]["process_id"] for each in waiting]
        for each in waiting:
            each.close()
    assert sorted(found) == sorted(made)


def test_nothing_is_handed_out_to_a_client_that_has_gone(caller: Caller, session: Session) -> None:
    assert caller.poll("answer_outside") == []
    for _ in range(10):
        connection = caller.connect()
        caller.send(connection, poll_path("answer_outside"), {"wait": "60s"})
        connection.close()
    process_id = asking("x")
    (task,) = caller.poll("answer_outside", wait="60s")
    assert (task["process_id"], task["attempt"]) == (process_id, 1)


def test_a_server_that_stops_answers_polls_at_once(engine: Engine) -> None:
    outside_world.make_known()
    server = Server(console.PLAIN)
    caller = Caller(server.start(), console.token())
    connection = caller.connect()
    caller.send(connection, poll_path("answer_outside"), {"wait": "60s"})
    # It is served, for it has connected before this one.
    assert caller.get("/healthz").status == 200
    stopped: list[bool] = []
    stopping = threading.Thread(target=lambda: stopped.append(server.stop(50)))
    stopping.start()
    assert answer(connection).data == {"tasks": []}
    connection.close()
    stopping.join(60)
    assert stopped == [True]


def test_a_name_may_be_anything(caller: Caller) -> None:
    process_id = asking(1, decider=outside_world.ask_another)
    (task,) = caller.poll("an/other one?")
    assert task["process_id"] == process_id
    assert caller.release(task, value=None).status == 200


def test_what_is_not_there(caller: Caller) -> None:
    said = caller.post(poll_path("answer_outsid"), {})
    assert said.status == 404
    assert "did you mean" in said.error[1]
    said = caller.post(poll_path("answer_inside"), {})
    assert (said.status, said.error[0]) == (422, "unprocessable")
    assert "only actors declared with outside=True" in said.error[1]
    nobody = {"process_id": 2**62, "task": 1, "pass_key": str(uuid.uuid4()), "epoch": 1}
    assert caller.heartbeat(nobody).status == 404
    assert caller.release(nobody, value=1).error == ("not_found", f"process {2**62} has no task 1")


def test_a_process_is_shown(url: str, session: Session) -> None:
    root = Caller(url, console.token("root", "operator"))
    process_id = asking("x", decider=outside_world.ask_outside)
    said = root.get(f"/api/v1/processes/{process_id}")
    assert (said.status, said.data["name"], said.data["state"]) == (200, "ask_outside", "ACTIVE")
    assert [(each["number"], each["actor"], each["state"]) for each in said.data["tasks"]] == [
        (1, "ask_outside", "FOLLOWS"),
        (2, "answer_outside", "READY"),
        (3, "told_outside", "PENDING"),
    ]
    (task,) = root.poll("answer_outside")
    value = {"text": "x" * 5000, "$value": {"a": 1}}
    assert root.release(task, value=value).status == 200
    finished(session, process_id)
    said = root.get(f"/api/v1/processes/{process_id}")
    assert (said.data["state"], said.data["value"], said.data["error"]) == ("FINISHED", {"value": value}, None)
    assert {each["worker"] for each in said.data["tasks"]} == {"inside@test", "root@http"}
    assert root.get("/api/v1/processes/99").error[0] == "not_found"
    assert root.get("/api/v1/processes/-1").status == 400


def test_a_process_is_started(url: str, session: Session) -> None:  # P2
    producer = Caller(url, console.token("producer", "producer", "ask_*"))
    body = {
        "name": "ask_outside",
        "args": ["a"],
        "kwargs": {"b": 1},
        "custom_id": "c-1",
        "idempotency_key": "i-1",
        "attributes": {"shop": "x"},
        "priority": 7,
    }
    said = producer.post("/api/v1/processes", body)
    assert said.status == 200
    assert producer.post("/api/v1/processes", body).data == said.data
    row = session.get_one(Process, said.data["process_id"])
    assert (row.name, row.custom_id, row.priority, row.attributes) == ("ask_outside", "c-1", 7, {"shop": "x"})
    outside_world.work()
    (task,) = Caller(url, console.token()).poll("answer_outside")
    assert (task["args"], task["kwargs"], task["custom_id"]) == (["a"], {"b": 1}, "c-1")
    said = producer.post("/api/v1/processes", {"name": "ask_nobody"})
    assert (said.status, said.error[0]) == (404, "not_found")
    assert producer.post("/api/v1/processes", {"name": "told_outside", "args": ["x"]}).status == 403
    assert producer.post("/api/v1/processes", {"name": "ask_outside", "priority": 40_000}).status == 400
