"""The log of executions (J5): complete, searchable, and not kept for ever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import transaction
from app.jobs import Outcome, endings, enqueue, retention
from app.jobs.endings import ERROR_LIMIT, TRACEBACK_LIMIT, Done, Failure
from app.jobs.model import Job, JobLog, JobState
from app.jobs.search import Filters, search_jobs, search_log
from app.settings import settings
from tests.kit.rows import count
from tests.kit.tables import Table
from tests.kit.tasks import noop, record, sleep_for


def run(jobs: Table, failure: Failure | None = None, result: str | None = None) -> None:
    claim = jobs.take()
    with transaction() as tx:
        if failure is None:
            endings.done(tx, claim.pass_key, [Done(claim.rows[0].id, 0.0, result)])
        else:
            endings.failed(tx, claim.pass_key, claim.rows[0], None, failure)


def test_the_log_says_who_when_how_long_outcome_and_what(session: Session, jobs: Table) -> None:
    # J5
    job_id = enqueue(sleep_for.s(1, value="x"), queue="check", key="k", priority=3)
    run(jobs, result="[1]")
    (entry,) = search_log(session, Filters())
    assert (entry.job_id, entry.attempt, entry.outcome, entry.worker) == (job_id, 1, Outcome.DONE, "w/1")
    assert (entry.task, entry.args, entry.kwargs) == ("tests.kit.tasks.sleep_for", [1], {"value": "x"})
    assert (entry.queue, entry.key, entry.rank, entry.result) == ("check", "k", -3, [1])
    assert entry.started_at is not None
    assert entry.started_at < entry.ended_at


def test_every_attempt_has_its_entry(session: Session, jobs: Table) -> None:
    job_id = enqueue(noop.s(), queue="check")
    run(jobs, Failure("RuntimeError: one", "trace", timedelta(0), Outcome.RETRIED))
    run(jobs, Failure("RuntimeError: two", "trace", None, Outcome.FAILED))
    entries = search_log(session, Filters(job_id=job_id))
    assert [(entry.attempt, entry.outcome, entry.error) for entry in entries] == [
        (2, Outcome.FAILED, "RuntimeError: two"),
        (1, Outcome.RETRIED, "RuntimeError: one"),
    ]
    (job,) = search_jobs(session, Filters(state=JobState.PARKED))
    assert (job.id, job.error) == (job_id, "RuntimeError: two")


@pytest.mark.parametrize("again", [None, timedelta(0)])
def test_a_monstrous_error_is_cut_and_saved(session: Session, jobs: Table, again: timedelta | None) -> None:
    enqueue(noop.s(), queue="check")
    run(jobs, Failure("\x00e" * ERROR_LIMIT, "t" * 2 * TRACEBACK_LIMIT + "\x00end", again, Outcome.FAILED))
    (entry,) = search_log(session, Filters())
    assert entry.error is not None
    assert len(entry.error) <= ERROR_LIMIT
    assert (entry.traceback or "").endswith("end")
    assert len(entry.traceback or "") <= TRACEBACK_LIMIT


def test_an_error_with_half_a_surrogate_is_saved(session: Session, jobs: Table) -> None:
    enqueue(noop.s(), queue="check")
    run(jobs, Failure("ValueError: \ud800", "trace \udfff", None, Outcome.FAILED))
    (entry,) = search_log(session, Filters())
    assert (entry.error or "").startswith("ValueError: ")


@pytest.fixture
def many(session: Session, jobs: Table) -> list[int]:
    """Twelve executions, the odd ones failed."""
    ids = []
    for number in range(12):
        ids.append(enqueue(record.s(f"value {number} 100%_"), queue="check", key=f"key{number}"))
        run(jobs, Failure(f"Error_{number}%", None, None, Outcome.FAILED) if number % 2 else None)
    return [int(each) for each in ids]


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({"task": "tests.kit.tasks.record"}, range(12)),
        ({"task": "other"}, []),
        ({"queue": "check", "outcome": Outcome.FAILED}, range(1, 12, 2)),
        ({"key": "key3"}, [3]),
        ({"worker": "w/"}, range(12)),
        ({"worker": "w_"}, []),
        ({"error": "error_1%"}, [1]),
        ({"error": "ERROR"}, range(1, 12, 2)),
        ({"error": "%"}, range(1, 12, 2)),
        ({"arguments": "value 7"}, [7]),
        ({"arguments": "100%_"}, range(12)),
        ({"arguments": "1__%"}, []),
    ],
    ids=str,
)
def test_everything_given_must_hold(
    session: Session, many: list[int], filters: dict[str, Any], numbers: range | list[int]
) -> None:
    # J5
    found = search_log(session, Filters(**filters), 100)
    assert [many.index(entry.job_id) for entry in found] == list(reversed(numbers))


def test_the_log_is_searched_by_time_and_by_page(session: Session, many: list[int]) -> None:
    entries = search_log(session, Filters(), 100)
    middle = entries[5].ended_at
    assert search_log(session, Filters(since=middle), 100) == entries[:6]
    assert search_log(session, Filters(until=middle), 100) == entries[6:]
    page = search_log(session, Filters(), 4)
    assert search_log(session, Filters(before_id=page[-1].id), 4) == entries[4:8]


def test_the_queue_is_searched_the_oldest_first(session: Session, jobs: Table) -> None:
    ids = [enqueue(record.s(number), queue="check") for number in range(3)]
    jobs.take()
    assert [job.id for job in search_jobs(session, Filters())] == ids
    assert [job.id for job in search_jobs(session, Filters(state=JobState.WAITING))] == ids[1:]
    assert [job.id for job in search_jobs(session, Filters(arguments="[2]"))] == [ids[2]]
    assert [job.id for job in search_jobs(session, Filters(), 1)] == ids[:1]


# Retention.


def age(session: Session, days: float, *, every: int = 1) -> None:
    old = sa.func.now() - timedelta(days=days)
    session.execute(sa.update(JobLog).where(JobLog.id % every == 0).values(ended_at=old))
    session.commit()


def test_what_is_over_age_goes_in_bounded_passes(
    session: Session, many: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # J5
    monkeypatch.setenv("TIDEMILL_LOG_RETENTION", "2d")
    settings.cache_clear()
    age(session, 1.9)
    age(session, 2.1, every=2)
    assert [retention.run_once(4).removed for _ in range(3)] == [4, 2, 0]
    assert count(session, JobLog) == 6


def test_two_retentions_share_the_work(session: Session, many: list[int]) -> None:
    age(session, 40)
    session.execute(sa.select(JobLog.id).order_by(JobLog.id).limit(5).with_for_update())
    assert retention.run_once().removed == 7
    session.commit()
    assert retention.run_once().removed == 5


def test_the_columns_that_search_names_exist() -> None:
    for field in ("task", "queue", "key", "error", "args", "kwargs"):
        assert hasattr(Job, field)
        assert hasattr(JobLog, field)
