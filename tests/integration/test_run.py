"""How executions end, each in this process: the runner of a worker child, Celery's tracer, a real database."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa
from celery.exceptions import Retry
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from app import claims, db, doorbell
from app.alarm import HandBack, alarm
from app.calling import CeleryCalls
from app.celery import app as celery_app
from app.claims import Cursor, keeper
from app.doorbell import Bell
from app.errors import PoolExhausted, TidemillError
from app.jobs import Outcome, this_job
from app.jobs.model import Job, JobLog
from app.jobs.run import Runner
from tests.kit import rows, tasks
from tests.kit.waiting import wait_until
from tidemill import enqueue, enqueue_many, retry, transaction

pytestmark = pytest.mark.usefixtures("broker_url")
LEASE = timedelta(seconds=60)


@pytest.fixture
def runner(database_url: str) -> Runner:
    alarm.install()
    return Runner(CeleryCalls(celery_app, "tests"), "tests/1", LEASE, lambda: False)


def _run(runner: Runner, queue: str = "jobs") -> int:
    return runner.serve(queue, 100)[0]


def _logged(session: Session, job_id: int) -> list[JobLog]:
    session.rollback()
    return list(session.execute(sa.select(JobLog).where(JobLog.job_id == job_id).order_by(JobLog.id)).scalars())


def test_a_plain_exception_parks(runner: Runner, session: Session) -> None:
    """Retries are those that the task is configured for; this one is for none."""
    job_id = enqueue(tasks.fail.s("x"))
    assert _run(runner) == 1
    assert rows.state(session, job_id) == "parked"
    assert [entry.outcome for entry in _logged(session, job_id)] == [Outcome.FAILED]


def test_max_attempts_of_the_call_rules_what_the_task_says(runner: Runner, session: Session) -> None:
    more = enqueue(tasks.asks_again.s("more"), max_attempts=5)
    fewer = enqueue(tasks.asks_again.s("fewer"), max_attempts=1)
    _run(runner)
    assert rows.outcomes(session, more) == [Outcome.RETRIED] * 4 + [Outcome.FAILED]
    assert rows.outcomes(session, fewer) == [Outcome.FAILED]


@pytest.mark.parametrize("text", ["half a pair: \ud800", "NUL: \x00", "ж" * 10_000])
def test_whatever_an_error_says_can_be_kept(runner: Runner, session: Session, text: str) -> None:
    def fail() -> None:
        raise RuntimeError(text)

    with _calling(runner, fail):
        job_id = _enqueue_call(session)
        _run(runner)
    (entry,) = _logged(session, job_id)
    assert entry.outcome is Outcome.FAILED
    assert entry.error is not None
    assert entry.error.startswith(f"RuntimeError: {text[:3]}")


@pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning")
def test_arguments_that_do_not_fit_the_task_fail_it(runner: Runner, session: Session) -> None:
    """Also where Celery's tracer never gets as far as the task."""
    wrong = enqueue(tasks.record.s("x"))
    odd = enqueue(tasks.record.s("x"))
    session.execute(sa.update(Job).where(Job.id == wrong).values(args=[1, 2, 3]))
    session.execute(sa.update(Job).where(Job.id == odd).values(kwargs=["not", "a", "mapping"]))
    session.commit()
    _run(runner)
    assert rows.outcomes(session, wrong) == rows.outcomes(session, odd) == [Outcome.FAILED]
    assert rows.executions(session) == []


def test_an_unknown_task_waits_for_a_worker_that_knows_it(runner: Runner, session: Session) -> None:
    unknown, other = enqueue(tasks.record.s("x")), enqueue(tasks.record.s("y"))
    session.execute(sa.update(Job).where(Job.id == unknown).values(task="of.a.later.release"))
    session.commit()
    _run(runner)
    assert rows.outcomes(session, other) == [Outcome.DONE]
    job = rows.job(session, unknown)
    assert job is not None
    assert (job.state, job.attempts) == ("waiting", 0)
    assert job.error == "no task named of.a.later.release is registered on tests"


def test_expired_jobs_do_not_run(runner: Runner, session: Session) -> None:
    job_id = enqueue(tasks.record.s("late"), expires=0.001)
    wait_until(lambda: session.execute(sa.select(sa.func.clock_timestamp() > Job.expires_at)).scalar_one())
    session.rollback()
    _run(runner)
    assert rows.executions(session) == []
    assert rows.outcomes(session, job_id) == [Outcome.EXPIRED]


@contextmanager
def _calling(runner: Runner, call: Callable[[], object]) -> Iterator[None]:
    """`tests.called` does this."""

    def body() -> None:
        call()

    celery_app.task(name="tests.called", shared=False)(body)
    yield
    del celery_app.tasks["tests.called"]


def _enqueue_call(session: Session, **words: Any) -> int:
    job_id = enqueue(tasks.record.s("x"), **words)
    session.execute(sa.update(Job).where(Job.id == job_id).values(task="tests.called", args=[]))
    session.commit()
    return job_id


def test_a_job_ends_with_its_own_transaction(runner: Runner, session: Session) -> None:
    """J3: its effects and its end are one commit; there is no second one."""
    seen: list[object] = []

    def twice() -> None:
        with this_job().transaction() as tx:
            tx.execute(sa.text("INSERT INTO public.execution (task, value, pid) VALUES ('own', 'x', 0)"))
        seen.append(rows.state(session, this_job().id))
        with pytest.raises(TidemillError, match="has ended"), this_job().transaction():
            pass

    with _calling(runner, twice):
        job_id = _enqueue_call(session)
        _run(runner)
    assert seen == [None], "it was gone with that commit"
    assert rows.executions(session) == [("own", "x")]
    assert rows.outcomes(session, job_id) == [Outcome.DONE]


def test_a_transaction_of_the_job_that_fails_leaves_the_job(runner: Runner, session: Session) -> None:
    def fails() -> None:
        with this_job().transaction() as tx:
            tx.execute(sa.text("INSERT INTO public.execution (task, value, pid) VALUES ('own', 'x', 0)"))
            raise RuntimeError

    with _calling(runner, fails):
        job_id = _enqueue_call(session)
        _run(runner)
    assert rows.executions(session) == []
    assert rows.outcomes(session, job_id) == [Outcome.FAILED]


def test_the_idempotency_key_stays_for_the_job_and_changes_with_what_takes_its_place(
    runner: Runner, session: Session
) -> None:
    seen: list[tuple[str, int]] = []

    def note() -> None:
        seen.append((this_job().idempotency_key, this_job().attempt))
        raise RuntimeError

    with _calling(runner, note):
        job_id = _enqueue_call(session)
        _run(runner)
        retry(job_id)
        _run(runner)
        session.execute(sa.update(Job).values(key="k", state="waiting", not_before=None))
        session.commit()
        assert enqueue(tasks.record.s("newer"), key="k") == job_id
        session.execute(sa.update(Job).where(Job.id == job_id).values(task="tests.called", args=[]))
        session.commit()
        _run(runner)
    first, second, newer = seen
    assert first[0] == second[0]
    assert newer[0] != first[0], "other arguments, another effect"
    assert newer[1] == 1, "what the older one tried is not its"


def test_a_failure_that_is_absorbed_keeps_its_error(runner: Runner, session: Session) -> None:
    """The same key was enqueued again while it ran: the newer takes its place."""

    def fails_meanwhile() -> None:
        enqueue(tasks.record.s("newer"), key="k")
        raise this_task().retry(exc=RuntimeError("first try"), countdown=0)

    def this_task() -> Any:
        return celery_app.tasks["tests.called"]

    with _calling(runner, fails_meanwhile):
        job_id = _enqueue_call(session, key="k")
        _run(runner)
    (entry,) = _logged(session, job_id)
    assert (entry.outcome, entry.error) == (Outcome.ABSORBED, "RuntimeError: first try")
    assert rows.executions(session) == [("record", "newer")]


def test_a_batch_that_is_handed_back_is_not_blamed(
    runner: Runner, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = enqueue_many([tasks.together.s(number) for number in range(4)])

    def stop(*_: object) -> None:
        raise HandBack("the worker was stopped")

    runner.paces.setdefault("jobs", _paced())
    monkeypatch.setattr(tasks, "noted", stop)
    monkeypatch.setattr(runner, "stopping", iter([False, False, False, *[True] * 9]).__next__)
    _run(runner)
    session.rollback()
    assert session.execute(sa.select(Job.state, Job.attempts, Job.alone)).all() == [("waiting", 0, False)] * 4
    assert {rows.outcomes(session, job_id)[0] for job_id in ids} == {Outcome.INTERRUPTED}


def _paced() -> Any:
    from app.jobs.run import Pace

    return Pace(seconds=0.001)


def test_what_waits_behind_a_slow_job_goes_back_though_the_job_holds_all_connections(
    runner: Runner, session: Session
) -> None:
    """By the keeper's own connection, within about a second."""
    done = threading.Event()

    def slow() -> None:
        with db.engine().connect() as one, db.engine().connect() as two:
            one.execute(sa.select(1))
            two.execute(sa.select(1))
            wait_until(lambda: _waiting(session) == 5, 60)
            done.set()

    db.become_worker_child()
    try:
        with _calling(runner, slow):
            _enqueue_call(session, priority=1)
            enqueue_many([tasks.record.s(number) for number in range(5)])
            runner.paces["jobs"] = _paced()
            runner.stopping = done.is_set
            _run(runner)
    finally:
        db._process.worker_child = False
        db.dispose()
    assert done.is_set()
    session.rollback()
    assert session.execute(sa.select(Job.state, Job.attempts)).all() == [("waiting", 0)] * 5


@pytest.fixture
def usual_depth() -> Iterator[None]:
    """Hypothesis may have raised it for all of this process."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("usual_depth")
def test_what_python_cannot_read_fails_its_own_job_only(runner: Runner, session: Session) -> None:
    """SQL takes numbers and depths that Python does not."""
    long = enqueue(tasks.record.s("x"))
    deep, sound = enqueue(tasks.record.s("x")), enqueue(tasks.record.s("sound"))
    for job_id, text in ((long, f"[{'1' * 5000}]"), (deep, "[" * 3_000 + "]" * 3_000)):
        values = {"args": text, "id": job_id}
        session.execute(sa.text("UPDATE tidemill.job SET args = CAST(:args AS json) WHERE id = :id"), values)
    session.commit()
    runner.paces["jobs"] = _paced()
    _run(runner)
    session.rollback()
    outcomes = sa.select(JobLog.job_id, JobLog.outcome)
    assert {row.job_id: row.outcome for row in session.execute(outcomes)} == {
        long: Outcome.FAILED,
        deep: Outcome.FAILED,
        sound: Outcome.DONE,
    }


def test_what_celery_lets_through_is_a_failure_of_the_job(runner: Runner, session: Session) -> None:
    def cancelled() -> None:
        raise asyncio.CancelledError

    with _calling(runner, cancelled):
        job_id = _enqueue_call(session)
        _run(runner)
    assert rows.outcomes(session, job_id) == [Outcome.FAILED]


YEAR_10000 = datetime.max.replace(tzinfo=timezone(-timedelta(hours=12)))


@pytest.mark.parametrize(
    "words",
    [{"countdown": float("nan")}, {"countdown": 1e12}, {"eta": YEAR_10000}, {"eta": "now"}, {"max_retries": math.nan}],
)
def test_nonsense_in_a_retry_parks_and_says_so(runner: Runner, session: Session, words: dict[str, Any]) -> None:
    with _calling(runner, lambda: celery_app.tasks["tests.called"].retry(**({"countdown": 60} | words))):
        job_id = _enqueue_call(session)
        _run(runner)
    assert (rows.state(session, job_id), rows.outcomes(session)) == ("parked", [Outcome.FAILED])
    assert f"BadRequest: tests.called: {next(iter(words))}=" in (_logged(session, job_id)[0].error or "")


@pytest.mark.parametrize("when", [float("inf"), 1e300, "soon", YEAR_10000], ids=str)
def test_so_does_nonsense_in_a_retry_that_is_raised(runner: Runner, session: Session, when: Any) -> None:
    def again() -> None:
        raise Retry(when=when)

    with _calling(runner, again):
        job_id = _enqueue_call(session)
        _run(runner)
    assert rows.state(session, job_id) == "parked"
    assert "BadRequest: when=" in (_logged(session, job_id)[0].error or "")


def test_more_tries_than_there_can_be_are_all_that_there_are(runner: Runner, session: Session) -> None:
    with _calling(runner, lambda: celery_app.tasks["tests.called"].retry(countdown=60, max_retries=100_000)):
        _enqueue_call(session)
        _run(runner)
    assert session.scalars(sa.select(Job.state)).one() == "waiting"


def test_a_commit_that_fails_leaves_the_lease_alive(runner: Runner, session: Session) -> None:
    held: list[object] = []

    def fails_at_commit() -> None:
        with this_job().transaction() as tx:
            tx.execute(sa.text("CREATE TEMP TABLE d (i int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP"))
            tx.execute(sa.text("INSERT INTO d VALUES (1), (1)"))

    def fails() -> None:
        with pytest.raises(sa.exc.IntegrityError):
            fails_at_commit()
        assert keeper.keeper._holding is not None
        held.append(set(keeper.keeper._holding.held))

    with _calling(runner, fails):
        job_id = _enqueue_call(session)
        _run(runner)
    assert held == [{(job_id,)}]
    assert rows.outcomes(session, job_id) == [Outcome.DONE]


def _waiting(session: Session) -> int:
    session.rollback()
    return session.execute(sa.select(sa.func.count()).where(Job.state == "waiting")).scalar_one()


def test_a_process_that_has_all_its_connections_in_use_is_told_so(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = db.new_engine(str(db.engine().url.render_as_string(hide_password=False)), pool_size=1)
    monkeypatch.setattr(engine.pool, "_timeout", 0.05)
    with engine.connect(), pytest.raises(PoolExhausted, match="TIDEMILL_POOL_SIZE"), engine.connect():
        pass
    engine.dispose()


def test_a_scoped_session_is_a_session(session: Session) -> None:
    scoped = scoped_session(sessionmaker(db.engine()))
    job_id = enqueue(tasks.noop.s(), session=scoped)
    assert rows.job(session, job_id) is None, "not committed yet"
    scoped.commit()
    assert rows.state(session, job_id) == "waiting"
    scoped.remove()


def test_a_rate_limit_of_celery_does_not_hold_back_tickets(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery holds back messages of the task that they name, and a ticket names none of the user's."""
    rung: list[Bell] = []
    monkeypatch.setattr("app.doorbell.ring", lambda queue, task: rung.append(Bell(queue, task)))
    monkeypatch.setattr(tasks.record, "rate_limit", "1/m", raising=False)
    enqueue(tasks.record.s("x"))
    (headers,) = map(doorbell._headers, rung)
    assert (headers["task"], headers["shadow"]) == ("tidemill.work", "tests.kit.tasks.record")


def test_a_claim_takes_one_row_at_a_time_until_it_was_measured(runner: Runner, session: Session) -> None:
    enqueue_many([tasks.record.s(number) for number in range(3)])
    claim = claims.take(Cursor(Job, "jobs"), 1, worker="w", lease=LEASE)
    assert len(claim.rows) == 1
    with transaction() as tx:
        claims.give_back(tx, Job, claim.pass_key, [(claim.rows[0].id,)], charged=False)
    assert _run(runner) == 3
