"""Periodic jobs are durable rows, fired once for each slot in the cluster (J9)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.celery import app as celery_app
from app.errors import BadRequest, NotFound, UnknownTask, Unsupported
from app.jobs import periodic, schedules
from app.jobs.model import Job, PeriodicJob
from app.jobs.schedules import run_once
from app.registration import queues_of
from tests.kit.faults import Crashed, crash_at, pause_at
from tests.kit.rows import count
from tests.kit.tasks import noop, record


@pytest.fixture(autouse=True)
def _nothing_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "declared", {})


def late(session: Session, name: str, **ago: float) -> datetime:
    """Moves its next slot into the past."""
    row = session.get_one(PeriodicJob, name)
    row.next_at = row.next_at.replace(second=0, microsecond=0) - timedelta(**ago)
    session.commit()
    return row.next_at


def jobs(session: Session) -> list[Job]:
    session.rollback()
    return list(session.execute(sa.select(Job).order_by(Job.id)).scalars())


def row(session: Session, name: str) -> PeriodicJob:
    session.rollback()
    session.expire_all()
    return session.get_one(PeriodicJob, name)


def test_a_slot_fires_once_and_the_next_is_planned(session: Session) -> None:
    # J9
    name = periodic(record.s(5), every="1h", queue="q", priority=2)
    assert name == "tests.kit.tasks.record"
    assert run_once() == schedules.Report(fired=1, jobs=1)
    assert run_once() == schedules.Report()
    (job,) = jobs(session)
    assert (job.task, job.args, job.queue, job.rank, job.key) == (name, [5], "q", -2, f"periodic:{name}")
    found = row(session, name)
    assert found.fired_at == job.due_at
    assert found.next_at == job.due_at + timedelta(hours=1) if job.due_at else None


def test_a_worker_takes_the_queues_of_periodic_jobs() -> None:
    # J9: also one that no task is declared for.
    assert "reports" not in queues_of(celery_app)
    periodic(noop.s(), every="1h", queue="reports")
    assert "reports" in queues_of(celery_app)


def test_a_cron_line_waits_for_its_slot(session: Session) -> None:
    periodic(noop.s(), cron="0 0 1 1 *", tz="Europe/Berlin", name="yearly")
    assert run_once() == schedules.Report()
    assert f"{row(session, 'yearly').next_at:%m-%d %H:%M}" == "12-31 23:00"


def test_two_passes_at_once_fire_a_slot_once(session: Session) -> None:
    # J9: one holds the row when the other looks.
    periodic(noop.s(), every="1h")
    with pause_at("periodic.before_commit") as paused, ThreadPoolExecutor(1) as threads:
        first = threads.submit(run_once)
        paused.wait()
        assert run_once() == schedules.Report()
        paused.go_on()
        assert first.result(60).jobs == 1
    assert count(session) == 1


def test_four_services_fire_each_slot_once(session: Session) -> None:
    # J9
    for number in range(8):
        periodic(noop.s(), every="1h", name=f"p{number}")
    with ThreadPoolExecutor(4) as threads:
        reports = list(threads.map(lambda _: run_once(), range(4)))
    assert sum(report.jobs for report in reports) == 8
    assert count(session) == 8


@pytest.mark.parametrize(("point", "fired"), [("periodic.before_commit", 0), ("periodic.committed", 1)])
def test_a_crash_loses_no_slot_and_doubles_none(session: Session, point: str, fired: int) -> None:
    # J9
    periodic(noop.s(), every="1h")
    with crash_at(point), pytest.raises(Crashed):
        run_once()
    assert count(session) == fired
    run_once()
    assert count(session) == 1


@pytest.mark.parametrize(("policy", "fired"), [("last", 1), ("all", 4), ("none", 0)])
def test_slots_missed_while_nobody_looked(session: Session, policy: str, fired: int) -> None:
    # J9
    periodic(noop.s(), every="1h", catch_up=policy, name="p")
    first = late(session, "p", hours=3, minutes=30)
    assert run_once().jobs == fired
    found = jobs(session)
    assert [job.due_at for job in found] == [first + timedelta(hours=hour) for hour in range(4)][4 - fired :]
    assert row(session, "p").next_at == first + timedelta(hours=4)
    assert run_once().jobs == 0


def test_one_that_still_waits_is_not_joined_by_a_second(session: Session) -> None:
    periodic(noop.s(), every="1h", name="p")
    run_once()
    late(session, "p", hours=1)
    run_once()
    assert count(session) == 1


def test_with_all_every_slot_counts_although_one_waits(session: Session) -> None:
    periodic(noop.s(), every="1h", name="p", catch_up="all")
    run_once()
    late(session, "p", hours=1)
    run_once()
    assert len({job.key for job in jobs(session)}) == count(session) == 2


def test_declared_again_as_it_was_it_keeps_its_slot(session: Session) -> None:
    # J9: a restart neither fires nor skips one.
    periodic(noop.s(), every="1h", name="p")
    run_once()
    before = row(session, "p").next_at
    periodic(record.s(2), every=timedelta(hours=1), name="p", priority=7)
    found = row(session, "p")
    assert (found.next_at, found.task, found.rank) == (before, "tests.kit.tasks.record", -7)
    assert run_once().jobs == 0


@pytest.mark.parametrize("words", [{"every": "2h"}, {"cron": "0 0 1 1 *"}, {"cron": "0 0 1 1 *", "tz": "Asia/Tokyo"}])
def test_declared_with_another_timetable_it_is_planned_anew(session: Session, words: dict[str, Any]) -> None:
    periodic(noop.s(), cron="30 3 * * *", name="p")
    before = row(session, "p").next_at
    periodic(noop.s(), **words, name="p")
    assert row(session, "p").next_at != before
    assert count(session, PeriodicJob) == 1


def test_declared_again_it_stays_paused(session: Session) -> None:
    periodic(noop.s(), every="1h", name="p")
    schedules.set_paused("p", True)
    periodic(noop.s(), every="1h", name="p")
    assert run_once().jobs == 0
    schedules.set_paused("p", False)
    assert run_once().jobs == 1


def test_removed_it_fires_no_more(session: Session) -> None:
    periodic(noop.s(), every="1h", name="p")
    schedules.remove("p")
    assert run_once().jobs == 0
    with pytest.raises(NotFound, match="no periodic job is named 'p'"):
        schedules.remove("p")
    with pytest.raises(NotFound, match="no periodic job is named 'p'"):
        schedules.set_paused("p", True)


def test_it_can_belong_to_the_transaction_of_the_caller(session: Session) -> None:
    periodic(noop.s(), every="1h", session=session)
    session.rollback()
    assert count(session, PeriodicJob) == 0


def test_a_broken_timetable_does_not_stop_the_others(session: Session) -> None:
    periodic(noop.s(), every="1h", name="good")
    periodic(noop.s(), cron="* * * * *", name="bad")
    session.execute(
        sa.update(PeriodicJob).where(PeriodicJob.name == "bad").values(tz="Mars/Base", next_at=sa.func.now())
    )
    session.commit()
    report = run_once()
    assert (report.fired, report.broken) == (1, 1)
    assert run_once() == schedules.Report(), "and is not looked at in every pass"


def test_what_the_database_refuses_does_not_stop_the_others(session: Session) -> None:
    for name in ("bad", "good"):
        periodic(noop.s(), every="1h", name=name)
    changed = {"queue": "stage.offer.expire", "next_at": sa.func.now()}
    session.execute(sa.update(PeriodicJob).where(PeriodicJob.name == "bad").values(**changed))
    session.commit()
    assert run_once() == schedules.Report(fired=1, jobs=1, broken=1)
    assert run_once() == schedules.Report(), "and is not looked at in every pass"


def test_a_pass_is_bounded_the_most_overdue_first(session: Session) -> None:
    for number in range(5):
        periodic(noop.s(), every="1d", name=f"p{number}")
        late(session, f"p{number}", minutes=number)
    assert run_once(2).fired == 2
    assert {str(job.key) for job in jobs(session)} == {"periodic:p4", "periodic:p3"}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({}, BadRequest),
        ({"every": "1h", "cron": "* * * * *"}, BadRequest),
        ({"every": "soon"}, BadRequest),
        ({"every": "10ms"}, BadRequest),
        ({"cron": "* * *"}, BadRequest),
        ({"cron": "* * * * *", "tz": "Nowhere"}, BadRequest),
        ({"every": "1h", "catch_up": "some"}, BadRequest),
        ({"every": "1h", "priority": 10**6}, BadRequest),
        ({"every": "1h", "queue": ""}, BadRequest),
        ({"every": "1h", "name": "x" * 501}, BadRequest),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_refused_and_not_declared(
    session: Session, words: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        periodic(noop.s(), **words)
    assert schedules.declared == {}
    assert count(session, PeriodicJob) == 0


def test_a_call_that_cannot_be_made_is_refused(session: Session) -> None:
    for wrong in (noop.s(1), record.s(1, 2), record.s("x", nonsense=1)):
        with pytest.raises(BadRequest, match=rf"^{wrong.task} cannot be called so: .+ argument"):
            periodic(wrong, every="1h")
    for option, wrong in (("countdown", noop.s().set(countdown=5)), ("expires", noop.s().set(expires=60))):
        with pytest.raises(Unsupported, match=f"cannot have {option}"):
            periodic(wrong, every="1h")
    assert count(session, PeriodicJob) == 0


@pytest.mark.parametrize(("words", "rank"), [({}, -7), ({"priority": 0}, 0), ({"priority": -2}, 2)])
def test_a_priority_is_that_of_the_call_unless_another_is_given(
    session: Session, words: dict[str, Any], rank: int
) -> None:
    periodic(noop.s().set(priority=7), every="1h", name="p", **words)
    assert row(session, "p").rank == rank


def test_an_unknown_task_is_refused(session: Session) -> None:
    with pytest.raises(UnknownTask):
        periodic(noop.app.signature("no.such"), every="1h")


def test_while_modules_are_loaded_declarations_are_collected(session: Session) -> None:
    schedules.loading(True)
    try:
        periodic(noop.s(), every="1h", name="p")
    finally:
        schedules.loading(False)
    assert count(session, PeriodicJob) == 0
    assert schedules.write_declared(session) == 1
    session.commit()
    assert run_once().jobs == 1


def test_without_a_database_a_module_can_still_be_imported(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.conftest import forget_connections

    monkeypatch.delenv("TIDEMILL_DATABASE_URL")
    forget_connections()
    periodic(noop.s(), every="1h", name="p")
    assert "is not written yet" in caplog.text
    assert "p" in schedules.declared


def test_the_database_wants_one_of_cron_and_every(session: Session) -> None:
    periodic(noop.s(), every="1h", name="p")
    for values in ({"cron": "* * * * *"}, {"every": None}):
        with pytest.raises(sa.exc.IntegrityError, match="periodic_job_cron_or_every"):
            session.execute(sa.update(PeriodicJob).values(**values))
        session.rollback()
