"""Arguments that Postgres holds and Python cannot read, or cannot write again: they stop nobody but their own job; a
result that cannot be written not even that."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from celery import shared_task
from sqlalchemy.orm import Session

from app import jobs
from app.alarm import alarm
from app.calling import CeleryCalls
from app.celery import app as celery_app
from app.jobs import schedules
from app.jobs.model import Job, JobLog, Outcome
from app.jobs.run import Runner
from tests.kit import pages, rows, tasks
from tests.kit.cli import Tidemill, tidemill
from tidemill import enqueue, periodic

__all__ = ["tidemill"]
TEXTS = ("[1e400]", "[" + "9" * 5000 + "]", '["\\ud800"]', '["\\uDFFF\\u0000"]', "[" * 3000 + "]" * 3000, '["\\u0000"]')
#: What Python takes: it comes as what it is.
PLAIN = TEXTS[-1:]
RESULTS: dict[str, Any] = {"a set": {1}, "bytes": b"x", "not a number": math.nan, "half a pair": "\ud800"}
RESULTS |= {"too large": "x" * 5_000_000, "plain": [1]}


@shared_task(name="test_unreadable.give", ignore_result=False)
def give(name: str) -> Any:
    return RESULTS[name]


@pytest.fixture
def unreadable(broker_url: str, session: Session) -> list[int]:
    """As another program puts them in; one of each."""
    ids = [enqueue(tasks.record.s("x")) for _ in TEXTS]
    for job_id, text in zip(ids, TEXTS, strict=True):
        change = sa.text("UPDATE tidemill.job SET args = cast(:text AS json) WHERE id = :id")
        session.execute(change, {"text": text, "id": job_id})
    session.commit()
    return list(ids)


def _run() -> None:
    alarm.install()
    Runner(CeleryCalls(celery_app, "tests"), "tests/1", timedelta(seconds=60), lambda: False).serve("jobs", 100)


def _shown(text: str) -> Any:
    return ["\x00"] if text in PLAIN else {"$text": text}


def test_lists_show_the_text(unreadable: list[int], tidemill: Tidemill) -> None:
    listed = tidemill("job list --json").data["jobs"]
    assert {each["id"]: each["args"] for each in listed} == dict(
        zip(unreadable, map(_shown, TEXTS), strict=True),
    )
    assert tidemill("job list").out.count("tests.kit.tasks.record") == len(TEXTS)
    for job_id, text in zip(unreadable, TEXTS, strict=True):
        assert tidemill("job show --json", str(job_id)).data["job"]["args"] == _shown(text)
        said = tidemill("job show", str(job_id))
        assert (said.code, said.err) == (0, "")
        said.out.encode()


def test_what_is_done_to_one_works(unreadable: list[int], session: Session, tidemill: Tidemill) -> None:
    first, second, third, *others = map(str, unreadable)
    assert tidemill("job snooze --until 1s", first).code == 0
    assert tidemill("job priority", first, "7").code == 0
    session.execute(sa.update(Job).where(Job.id.in_(unreadable[:2])).values(attempts=1))
    session.commit()
    assert tidemill("job retry", first, second).code == 0
    assert tidemill("job cancel --yes", second, third).code == 0
    assert jobs.wait(int(second), 0).outcome == Outcome.CANCELLED
    logged = tidemill("job log --json").data["log"]
    assert [each["args"] for each in logged] == [_shown(TEXTS[2]), _shown(TEXTS[1])]
    assert tidemill("job log").code == 0
    assert tidemill("job rerun --yes --outcome cancelled").code == 0
    again = session.scalars(sa.select(sa.cast(Job.args, sa.Text)).order_by(Job.id.desc()).limit(2)).all()
    assert set(again) == set(TEXTS[1:3])
    assert tidemill("job cancel --yes", *others).code == 0


def test_a_worker_parks_them_and_runs_the_others(unreadable: list[int], session: Session) -> None:
    """What Python can read, though it cannot write it, is given to the task."""
    last = enqueue(tasks.record.s("ran"))
    _run()
    assert ("record", "ran") in rows.executions(session)
    assert rows.job(session, last) is None
    huge, deep = unreadable[1], unreadable[4]
    for job_id in (huge, deep):
        assert rows.state(session, job_id) == "parked"
        ended = jobs.wait(job_id, 0)
        assert (ended.outcome, (ended.error or "")[:28]) == (Outcome.FAILED, "the arguments cannot be read")


def test_pages_show_them(unreadable: list[int], session: Session) -> None:
    _run()
    with pages.signed_in() as person:
        for path in ("/jobs", "/log", *(f"/jobs/{each}" for each in unreadable)):
            assert person.get(path).status == 200, path
    session.rollback()
    assert session.scalars(sa.select(JobLog)).all()


def test_a_timetable_puts_them_in_as_they_are(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "declared", {})
    for number, text in enumerate(TEXTS):
        periodic(tasks.record.s(0), every="1h", name=str(number))
        change = sa.text("UPDATE tidemill.periodic_job SET args = cast(:text AS json) WHERE name = :name")
        session.execute(change, {"text": text, "name": str(number)})
    periodic(tasks.record.s(0), every="1h", name="plain")
    session.commit()
    assert schedules.run_once() == schedules.Report(fired=len(TEXTS) + 1, jobs=len(TEXTS) + 1)
    found = session.scalars(sa.select(sa.cast(Job.args, sa.Text))).all()
    assert sorted(found) == sorted([*TEXTS, "[0]"])


def test_timetables_are_listed(session: Session, monkeypatch: pytest.MonkeyPatch, tidemill: Tidemill) -> None:
    monkeypatch.setattr(schedules, "declared", {})
    periodic(tasks.record.s(0), every="1h", name="odd")
    session.execute(sa.text("UPDATE tidemill.periodic_job SET args = '[1e400]'"))
    session.commit()
    assert tidemill("job periodic --json").data["periodic"][0]["args"] == {"$text": "[1e400]"}
    assert tidemill("job periodic").code == 0


def test_a_result_that_cannot_be_kept_is_told_and_its_job_is_done(
    broker_url: str, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    ids = {name: enqueue(give.s(name)) for name in RESULTS}
    _run()
    found = {each.job_id: each for each in session.scalars(sa.select(JobLog))}
    assert {found[each].outcome for each in ids.values()} == {Outcome.DONE}
    assert {name: found[each].result for name, each in ids.items()} == dict.fromkeys(RESULTS, None) | {"plain": [1]}
    told = [each.getMessage() for each in caplog.records if "it is not kept" in each.getMessage()]
    assert len(told) == len(RESULTS) - 1
    for words in ("{1} has no JSON form", "b'x' has", "nan has", "take 5000002 bytes of JSON, more than"):
        assert [each.startswith("the result of test_unreadable.give") for each in told if words in each] == [True]
