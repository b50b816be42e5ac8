"""At most one waiting job has a key; the newer call takes the place of the older (J1)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import claims
from app.db import transaction
from app.jobs import JobId, JobState, Outcome, endings, enqueue
from app.jobs.endings import Done, Failure
from app.jobs.model import Job
from app.limits import configure
from recovery import jobs as lost_jobs
from recovery.invariants import check
from tests.kit.faults import crash_at, pause_at
from tests.kit.rows import count, job, outcomes
from tests.kit.tables import Table
from tests.kit.tasks import noop, record

AGAIN = timedelta(0)


def keyed(value: Any, session: Session | None = None, **words: Any) -> JobId:
    return enqueue(record.s(value), key="k", queue="check", session=session, **words)


def fail(claim: Any, again: timedelta | None = AGAIN) -> bool:
    with transaction() as tx:
        return endings.failed(
            tx, claim.pass_key, claim.rows[0], None, Failure("no", again=again, outcome=Outcome.RETRIED)
        )


def arguments(session: Session) -> list[tuple[Any, str]]:
    session.rollback()
    rows = session.execute(sa.select(Job.args, Job.state).order_by(Job.id))
    return [(row.args[0], str(row.state)) for row in rows]


def test_the_newer_call_takes_the_place_of_the_older(session: Session) -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    first = keyed("old", eta=late, priority=3, expires=60, max_attempts=2)
    assert keyed("new", eta=early, priority=-3) == first
    assert keyed("newest", eta=late, max_attempts=8) == first
    found = job(session, first)
    assert found is not None
    assert (found.args, found.due_at, found.rank, found.max_attempts, found.expires_at) == (
        ["newest"],
        early,
        -3,
        8,
        None,
    )
    assert count(session) == 1


def test_jobs_without_a_key_do_not_meet(session: Session) -> None:
    assert len({enqueue(noop.s()) for _ in range(3)} | {enqueue(noop.s(), key=key) for key in "ab"}) == 5


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_two_transactions_with_one_key_wait_for_each_other(session: Session, engine: Engine, ends: str) -> None:
    with ThreadPoolExecutor(1) as threads, Session(engine) as first:
        kept = keyed("first", first)
        second = threads.submit(keyed, "second")
        with pytest.raises(TimeoutError):
            second.result(0.2)
        getattr(first, ends)()
        assert (second.result(60) == kept) is (ends == "commit")
    assert arguments(session) == [("second", "waiting")]


def test_what_runs_has_no_key_in_the_way(session: Session, jobs: Table) -> None:
    first = keyed("running")
    jobs.take()
    second = keyed("waiting")
    assert second != first
    assert arguments(session) == [("running", "running"), ("waiting", "waiting")]


def test_a_claim_passes_over_what_a_transaction_changes(session: Session, engine: Engine, jobs: Table) -> None:
    # No worker takes the older form before the newer transaction has ended.
    job_id = keyed("old")
    with Session(engine) as other:
        keyed("new", other)
        assert jobs.take().rows == ()
        other.commit()
    claim = jobs.take()
    assert [(row.id, row.args) for row in claim.rows] == [(job_id, '["new"]')]


@pytest.mark.parametrize("commits", [True, False])
def test_enqueued_while_a_claim_has_not_committed(session: Session, jobs: Table, commits: bool) -> None:  # noqa: FBT001
    # The other order: the claim holds the row (a queue with limits is claimed in a transaction).
    configure(session, "check", max_parallel=5)
    session.commit()
    first = keyed("old")
    threads = ThreadPoolExecutor(2)
    if commits:
        with pause_at("claim.before_commit") as paused, threads:
            claim = threads.submit(jobs.take)
            paused.wait()
            second = threads.submit(keyed, "new")
            with pytest.raises(TimeoutError):
                second.result(0.2)
            paused.go_on()
            assert [row.args for row in claim.result(60).rows] == ['["old"]']
            assert second.result(60) != first
        assert arguments(session) == [("old", "running"), ("new", "waiting")]
    else:
        with crash_at("claim.before_commit", error=ZeroDivisionError), pytest.raises(ZeroDivisionError):
            jobs.take()
        assert keyed("new") == first
        assert arguments(session) == [("new", "waiting")]


def test_what_goes_back_gives_way_to_the_newer(session: Session, jobs: Table) -> None:
    first = keyed("old")
    claim = jobs.take()
    keyed("new")
    assert fail(claim)
    assert arguments(session) == [("new", "waiting")]
    assert outcomes(session, first) == [Outcome.ABSORBED]


def test_what_is_done_does_not_touch_the_newer(session: Session, jobs: Table) -> None:
    first = keyed("old")
    claim = jobs.take()
    keyed("new")
    with transaction() as tx:
        assert endings.done(tx, claim.pass_key, [Done(first, 0.0)]) == {first}
    assert arguments(session) == [("new", "waiting")]
    assert outcomes(session, first) == [Outcome.DONE]


def test_what_is_parked_stays_beside_the_newer(session: Session, jobs: Table) -> None:
    keyed("old")
    claim = jobs.take()
    keyed("new")
    assert fail(claim, again=None)
    assert arguments(session) == [("old", "parked"), ("new", "waiting")]


def test_a_lost_job_gives_way_to_the_newer(session: Session, jobs: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first = keyed("old")
    jobs.take(lease=timedelta(seconds=-1))
    keyed("new")
    assert sweep(monkeypatch).absorbed == 1
    assert arguments(session) == [("new", "waiting")]
    assert outcomes(session, first) == [Outcome.ABSORBED]


def sweep(monkeypatch: pytest.MonkeyPatch) -> lost_jobs.Report:
    """As if the server had run for longer than a lease."""
    whole = claims.overdue
    with monkeypatch.context() as patch:
        patch.setattr(claims, "overdue", lambda tx, model, limit, _lease: whole(tx, model, limit, AGAIN))
        return lost_jobs.run_once()


def test_a_newer_one_that_comes_in_between_wins_over_the_sweep(
    session: Session, jobs: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sweep has looked for newer ones, found none, and then one commits.
    keyed("old")
    jobs.take(lease=timedelta(seconds=-1))
    absorbed = endings.absorbed
    came = threading.Event()

    def late(*arguments: Any) -> set[int]:
        found = absorbed(*arguments)
        if not came.is_set():
            came.set()
            keyed("new")
        return found

    monkeypatch.setattr(endings, "absorbed", late)
    assert sweep(monkeypatch).absorbed == 1
    assert arguments(session) == [("new", "waiting")]
    assert check(session) == []


def test_two_waiting_jobs_with_one_key_are_refused_by_the_database(session: Session) -> None:
    keyed("one")
    with pytest.raises(sa.exc.IntegrityError, match="job_key"):
        session.execute(sa.insert(Job).values(task="t", queue="q", key="k"))
    session.rollback()
    session.execute(sa.insert(Job).values(task="t", queue="q", key="k", state=JobState.PARKED))
    session.commit()


def test_a_key_that_comes_from_a_retry_is_not_doubled_by_many_threads(session: Session, jobs: Table) -> None:
    """Producers, takers and failures at once: the rule holds, and nobody meets an error."""
    stop = threading.Event()

    def produce(number: int) -> None:
        for each in range(25):
            keyed(f"{number}.{each}")

    def work(_: int) -> None:
        while not stop.is_set():
            claim = jobs.take()
            while claim.rows:
                with suppress(sa.exc.IntegrityError):  # a newer one came in between: the runner looks again, too
                    fail(claim)
                    break

    with ThreadPoolExecutor(4) as threads:
        workers = [threads.submit(work, number) for number in range(2)]
        list(threads.map(produce, range(2)))
        stop.set()
        for each in workers:
            each.result(60)
    assert check(session) == []
    assert [state for _, state in arguments(session)].count("waiting") == 1
