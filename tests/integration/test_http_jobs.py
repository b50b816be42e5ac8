"""Jobs over HTTP: what is put in, by whom, and what becomes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.audit import Audit
from app.db import transaction
from app.jobs import known, outside
from app.jobs.known import Known
from app.jobs.model import Job, JobId, JobLog, JobState, Outcome
from app.jobs.outside import Wanted
from tests.kit import console
from tests.kit.console import Caller, Said

JOBS, BATCH = "/api/v1/jobs", "/api/v1/jobs/batch"
MAIL, CHARGE = "shop.send_mail", "shop.charge"


@pytest.fixture
def url(engine: Engine) -> Iterator[str]:
    with transaction() as session:
        known.register(session, [Known(MAIL, "mail", 4), Known(CHARGE, "money", 1), Known("odd", "stage.a.b", 1)])
    with console.serving() as found:
        yield found


@pytest.fixture
def caller(url: str) -> Caller:
    return Caller(url, console.token("shop", "producer"))


def put(caller: Caller, task: str = MAIL, **more: Any) -> int:
    said = caller.post(JOBS, {"task": task, **more})
    assert said.status == 200, said
    return int(said.data["job_id"])


def keyed(caller: Caller, body: Any, *keys: str) -> Said:
    connection = caller.connect()
    try:
        connection.putrequest("POST", JOBS)
        for name, value in caller.headers().items() | {("Content-Type", "application/json")}:
            connection.putheader(name, value)
        for key in keys:
            connection.putheader("Idempotency-Key", key)
        text = json.dumps(body).encode()
        connection.putheader("Content-Length", str(len(text)))
        connection.endheaders(text)
        return console.answer(connection)
    finally:
        connection.close()


def test_a_job_as_it_was_asked_for(caller: Caller, session: Session) -> None:  # J10
    job_id = put(
        caller,
        args=["o-1", 7],
        kwargs={"copy": True},
        queue="slow",
        key="mail:o-1",
        eta="2030-07-01T14:00:00+02:00",
        priority=5,
        expires="365000h",
        max_attempts=2,
    )
    shown = caller.get(f"{JOBS}/{job_id}").data
    assert (shown["log"], shown["result"]) == ([], None)
    job = shown["job"]
    assert (job["id"], job["state"], job["task"], job["queue"], job["key"]) == (
        *(job_id, "waiting", MAIL),
        *("slow", "mail:o-1"),
    )
    assert (job["args"], job["kwargs"], job["priority"], job["max_attempts"]) == (["o-1", 7], {"copy": True}, 5, 2)
    assert job["due_at"] == "2030-07-01T12:00:00+00:00"
    plain = caller.get(f"{JOBS}/{put(caller)}").data["job"]
    assert (plain["queue"], plain["priority"], plain["max_attempts"], plain["args"]) == ("mail", 0, 4, [])
    later = session.get_one(Job, put(caller, eta="30min"))
    assert (later.due_at - later.enqueued_at).total_seconds() == 1800  # type: ignore[operator]


def test_one_waiting_job_for_a_key(caller: Caller) -> None:
    first = put(caller, args=[1], key="k")
    assert put(caller, args=[2], key="k") == first
    assert caller.get(f"{JOBS}/{first}").data["job"]["args"] == [2]
    # The header is another way to say it.
    assert keyed(caller, {"task": MAIL, "args": [3]}, '"k"').data == {"job_id": first}
    assert keyed(caller, {"task": MAIL, "args": [4], "key": "k"}, "k").data == {"job_id": first}
    assert caller.get(f"{JOBS}/{first}").data["job"]["args"] == [4]
    for keys, told in ((("other",), "differ"), (("a", "b"), "send one"), (("",), "is empty"), (("\xff",), "written")):
        said = keyed(caller, {"task": MAIL, "key": "k"}, *keys)
        assert (said.status, said.error[0]) == (400, "bad_request")
        assert told in said.error[1]


def test_many_jobs_or_none(caller: Caller, session: Session) -> None:
    wanted = [{"task": MAIL, "args": [number]} for number in range(500)]
    ids = caller.post(BATCH, {"jobs": [*wanted, {"task": CHARGE, "key": "a"}, {"task": CHARGE, "key": "a"}]}).data
    found = ids["job_ids"]
    assert len(found) == 502
    assert (found[:-1], found[-1]) == (sorted(set(found)), found[-2])
    said = caller.post(BATCH, {"jobs": [*wanted, {"task": "shop.send_mial"}]})
    assert (said.status, said.error) == (
        404,
        ("not_found", "no task 'shop.send_mial' is known: did you mean shop.send_mail?"),
    )
    said = caller.post(BATCH, {"jobs": [*wanted, {"task": MAIL, "eta": "9999-12-31T23:59:59-10:00"}]})
    assert (said.status, said.error[0]) == (422, "unprocessable")
    assert session.scalar(sa.select(sa.func.count()).select_from(Job)) == 501
    assert caller.post(BATCH, {"jobs": []}).error[1] == "jobs has 0 items: give 1 to 1000"
    assert caller.post(BATCH, {"jobs": wanted * 3}).error[1] == "jobs has 1500 items: give 1 to 1000"


def test_scopes_are_of_queues(url: str, caller: Caller) -> None:
    narrow = Caller(url, console.token("narrow", "producer", "mail"))
    job_id = put(narrow, key="mine")
    assert put(narrow, CHARGE, queue="mail") > job_id
    other = put(caller, CHARGE, args=[100], key="theirs")
    for body in (
        {"task": CHARGE},
        {"task": MAIL, "queue": "money"},
        # It would take the place of a job in another's queue.
        {"task": MAIL, "key": "theirs"},
    ):
        said = narrow.post(JOBS, body)
        assert (said.status, said.error[0]) == (403, "denied"), body
        said = narrow.post(BATCH, {"jobs": [{"task": MAIL}, body]})
        assert (said.status, said.error[0]) == (403, "denied"), body
    assert caller.get(f"{JOBS}/{other}").data["job"]["args"] == [100]
    assert narrow.get(f"{JOBS}/{job_id}").status == 200
    assert narrow.get(f"{JOBS}/{other}").error[0] == "denied"
    assert narrow.post(f"{JOBS}/{other}/cancel", {}).error[0] == "denied"
    viewer, actor = (Caller(url, console.token(role, role)) for role in ("viewer", "actor"))
    assert (viewer.get(f"{JOBS}/{job_id}").status, actor.get(f"{JOBS}/{job_id}").status) == (200, 403)
    for each in (viewer, actor):
        assert each.post(JOBS, {"task": MAIL}).error[0] == "denied"
        assert each.post(f"{JOBS}/{job_id}/cancel", {}).error[0] == "denied"


def test_a_key_that_another_takes_at_the_same_time(url: str, caller: Caller, session: Session) -> None:
    """It is put in after the look at the key, and before its use: that look is taken again."""
    asked: list[str] = []

    def allow(queue: str) -> None:
        if not asked:
            other = threading.Thread(target=lambda: put(caller, CHARGE, args=[100], key="k"))
            other.start()
            other.join(60)
        asked.append(queue)
        if queue == "money":
            raise PermissionError

    with pytest.raises(PermissionError):
        outside.put([Wanted(MAIL, key="k")], allow)
    assert asked == ["mail", "mail", "money"]
    job = session.scalars(sa.select(Job)).one()
    assert (job.task, job.args) == (CHARGE, [100])


def test_two_calls_with_the_same_new_keys(
    url: str, caller: Caller, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the other: one of them is done again, and both are in."""
    real, both, met = outside._enqueue, threading.Barrier(2), threading.local()

    def enqueue(*words: Any) -> JobId:
        found = real(*words)
        if not hasattr(met, "once"):
            met.once = True
            both.wait(60)
        return found

    monkeypatch.setattr(outside, "_enqueue", enqueue)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda keys: caller.post(BATCH, keyed_jobs(keys)), ("ab", "ba"))
    assert (first.status, second.status) == (200, 200)
    assert first.data["job_ids"] == second.data["job_ids"][::-1]
    assert session.scalar(sa.select(sa.func.count()).select_from(Job)) == 2


def keyed_jobs(keys: str) -> Any:
    return {"jobs": [{"task": MAIL, "key": each} for each in keys]}


def test_cancelling(caller: Caller, session: Session) -> None:
    job_id = put(caller, args=[1])
    assert caller.post(f"{JOBS}/{job_id}/cancel", {}).data == {"cancelled": True}
    shown = caller.get(f"{JOBS}/{job_id}").data
    assert (shown["job"], [each["outcome"] for each in shown["log"]]) == (None, ["cancelled"])
    said = caller.post(f"{JOBS}/{job_id}/cancel", {})
    assert (said.status, said.error[0]) == (404, "not_found")
    running = put(caller)
    values = {"state": JobState.RUNNING, "pass_key": sa.func.gen_random_uuid(), "recovery_time": sa.func.now()}
    session.execute(sa.update(Job).where(Job.id == running).values(**values))
    session.commit()
    said = caller.post(f"{JOBS}/{running}/cancel", {})
    assert (said.status, said.error[0]) == (409, "wrong_state")
    assert caller.get(f"{JOBS}/{2**62}").error == ("not_found", f"no job {2**62}: neither in the queue nor in the log")


def test_a_body_that_cancelling_does_not_have_is_refused(caller: Caller, session: Session) -> None:
    job_id = put(caller)
    wrong: list[Any] = [{"dry_run": True}, [], "x"]
    for body in wrong:
        assert caller.post(f"{JOBS}/{job_id}/cancel", body).status == 400
    assert caller.get(f"{JOBS}/{job_id}").data["job"] is not None
    assert caller.post(f"{JOBS}/{job_id}/cancel", {}).status == 200
    audited = session.execute(sa.select(Audit.actor, Audit.action, Audit.subject)).one()
    assert (audited.actor.endswith("@http"), *audited[1:]) == (True, "job.cancel", f"job {job_id}")


def test_what_came_of_it(caller: Caller, session: Session) -> None:
    entry = {"job_id": 7, "attempt": 1, "queue": "mail", "task": MAIL, "args": [], "kwargs": {}, "rank": 0}
    common = {**entry, "max_attempts": 4, "enqueued_at": sa.func.now()}
    session.execute(sa.insert(JobLog).values(**common, outcome=Outcome.RETRIED, error="x" * 20_000, traceback="secret"))
    session.execute(sa.insert(JobLog).values(**common, outcome=Outcome.DONE, result={"sent": 1}))
    session.commit()
    shown = caller.get(f"{JOBS}/7").data
    assert (shown["job"], shown["result"]) == (None, {"sent": 1})
    assert [(each["outcome"], len(each["error"] or "")) for each in shown["log"]] == [("done", 0), ("retried", 10_000)]
    assert "secret" not in str(shown)


def test_arguments_that_only_postgres_can_read(caller: Caller, session: Session) -> None:
    call = sa.text("select tidemill.enqueue(:task, cast(:args as json))")
    for text in ("[1e999]", "[" + "9" * 5000 + "]", '["\\ud800"]', "[" * 5000 + "]" * 5000):
        job_id = session.execute(call, {"task": MAIL, "args": text}).scalar_one()
        session.commit()
        said = caller.get(f"{JOBS}/{job_id}")
        assert said.status == 200
        assert said.data["job"]["args"] in ({"$text": text}, ["\ud800"])


WRONG: list[tuple[Any, int, str]] = [
    ({}, 400, "the body lacks task"),
    ({"task": "a\0b"}, 400, "has a control character"),
    ({"task": "x"}, 404, "no task 'x' is known"),
    ({"task": MAIL, "args": {}}, 400, "args must be a list"),
    ({"task": MAIL, "kwargs": []}, 400, "kwargs must be an object"),
    ({"task": MAIL, "queue": "k\0"}, 400, "has a control character"),
    ({"task": MAIL, "queue": " "}, 422, "must be text that is not empty"),
    ({"task": MAIL, "queue": "stage.offer.score"}, 422, "jobs cannot go to queues"),
    ({"task": "odd"}, 422, "jobs cannot go to queue"),
    ({"task": MAIL, "key": "k" * 501}, 400, "501 characters"),
    ({"task": MAIL, "priority": 32768}, 400, "priority must lie between"),
    ({"task": MAIL, "priority": 2**64}, 400, "priority must lie between"),
    ({"task": MAIL, "max_attempts": 0}, 400, "max_attempts must lie between"),
    ({"task": MAIL, "eta": "2030-01-01T00:00:00"}, 400, "is none of what it may be. A time with its zone"),
    ({"task": MAIL, "eta": 5}, 400, "A time with its zone"),
    ({"task": MAIL, "eta": "999999999w"}, 422, "eta"),
    ({"task": MAIL, "eta": "36526d"}, 422, "100 years at most"),
    ({"task": MAIL, "expires": "0001-06-01T00:00:00Z"}, 422, "between the years 2 and 9998"),
    ({"task": MAIL, "args": ["x" * 1_048_573]}, 413, "more than 1048576"),
]


def test_bodies_that_cannot_be(caller: Caller, session: Session) -> None:
    for body, status, told in WRONG:
        said = caller.post(JOBS, body)
        assert (said.status, told in said.error[1]) == (status, True), said
    assert session.scalar(sa.select(sa.func.count()).select_from(Job)) == 0
