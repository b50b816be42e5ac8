"""Jobs are handed over inside the producer's own transaction: both commit, or neither does (J1)."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import combinations
from typing import Any

import kombu
import pytest
import sqlalchemy as sa
from celery import chain, chord, group
from celery.app import routes as celery_routes
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import doorbell
from app.celery import app as celery_app
from app.errors import BadRequest, NotJson, TooLarge, UnknownTask, Unsupported
from app.jobs import JobState, cancel, enqueue, enqueue_many
from app.jobs.model import Job, PeriodicJob
from tests.kit import strategies
from tests.kit.rows import count, job
from tests.kit.tasks import asks_again, crash, flaky, noop, record, sleep_for, together
from tidemill import periodic, transaction


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queues that the doorbell was rung for."""
    found: list[str] = []
    monkeypatch.setattr(doorbell, "ring", lambda queue, _task: found.append(queue))
    return found


@pytest.fixture
def own(engine: Engine) -> Iterator[Session]:
    """A session of the producer's own, with a table of its own."""
    theirs = sa.create_engine(engine.url)
    with Session(theirs) as found:
        found.execute(sa.text("CREATE TABLE orders (id int PRIMARY KEY)"))
        found.commit()
        yield found
    theirs.dispose()


def orders(session: Session) -> int:
    session.rollback()
    return int(session.execute(sa.text("SELECT count(*) FROM orders")).scalar_one())


def test_both_commit(own: Session, session: Session, rung: list[str]) -> None:
    # J1
    own.execute(sa.text("INSERT INTO orders VALUES (1)"))
    job_id = enqueue(sleep_for.s(1, value=None), session=own)
    assert count(session) == 0, "not before the commit"
    assert rung == []
    own.commit()
    found = job(session, job_id)
    assert found is not None
    assert (found.state, found.task, found.args, found.kwargs) == (
        JobState.WAITING,
        "tests.kit.tasks.sleep_for",
        [1],
        {"value": None},
    )
    assert orders(session) == 1
    assert rung == ["jobs"]


def test_neither_commits(own: Session, session: Session, rung: list[str]) -> None:
    # J1
    own.execute(sa.text("INSERT INTO orders VALUES (1)"))
    enqueue(noop.s(), session=own)
    own.rollback()
    own.commit()
    assert (count(session), orders(session), rung) == (0, 0, [])


def test_an_error_of_the_producer_takes_the_job_with_it(session: Session, rung: list[str]) -> None:
    def produce() -> None:
        with transaction() as tx:
            enqueue(noop.s(), session=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        produce()
    assert (count(session), rung) == (0, [])


def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it(own: Session, session: Session) -> None:
    # J1
    kept = enqueue(noop.s(), session=own)
    inner = own.begin_nested()
    enqueue(noop.s(), session=own)
    inner.rollback()
    with own.begin_nested():
        also = enqueue(noop.s(), session=own)
    own.commit()
    assert [row.id for row in session.execute(sa.select(Job.id).order_by(Job.id))] == [kept, also]


def test_the_bell_rings_after_the_outermost_commit_only(own: Session, rung: list[str]) -> None:
    with own.begin_nested():
        enqueue(noop.s(), session=own)
        with own.begin_nested():
            enqueue(noop.s(), session=own, queue="other")
    own.flush()
    assert rung == []
    own.commit()
    assert sorted(rung) == ["jobs", "other"]


def test_the_bell_rings_once_for_each_transaction(own: Session, rung: list[str]) -> None:
    for _ in range(3):
        enqueue(noop.s(), session=own)
    own.commit()
    own.commit()
    assert rung == ["jobs"]
    enqueue(noop.s(), session=own)
    own.commit()
    assert rung == ["jobs", "jobs"]


def test_a_rolled_back_transaction_rings_nothing_later(own: Session, rung: list[str]) -> None:
    enqueue(noop.s(), session=own)
    own.rollback()
    own.execute(sa.select(1))
    own.commit()
    assert rung == []


def test_without_a_session_it_is_a_transaction_of_its_own(session: Session, rung: list[str]) -> None:
    assert job(session, enqueue(noop.s())) is not None
    assert rung == ["jobs"]


def test_everything_that_is_asked_for_is_in_the_row(session: Session) -> None:
    at = datetime(2030, 5, 1, 12, tzinfo=UTC)
    job_id = enqueue(noop.s(), queue="mail", key="k", eta=at, priority=7, expires=timedelta(hours=2), max_attempts=9)
    found = job(session, job_id)
    assert found is not None
    assert (found.queue, found.key, found.due_at, found.rank, found.max_attempts) == ("mail", "k", at, -7, 9)
    assert found.expires_at is not None
    assert found.expires_at - found.enqueued_at == timedelta(hours=2)


def test_spans_are_added_to_the_time_of_the_database(session: Session) -> None:
    found = job(session, enqueue(noop.s(), eta=90, expires=timedelta(days=1)))
    assert found is not None
    assert found.due_at is not None
    assert found.due_at - found.enqueued_at == timedelta(seconds=90)


def test_words_of_celery_that_a_job_can_have_are_taken_over(session: Session) -> None:
    found = job(session, enqueue(noop.s().set(queue="mail", priority=5)))
    assert found is not None
    assert (found.queue, found.rank) == ("mail", -5)
    assert [job(session, enqueue(task.s())).max_attempts for task in (noop, crash, asks_again)] == [4, 3, 3]  # type: ignore[union-attr]


def test_routes_of_celery_say_the_queue(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    routes = celery_routes.prepare([{"tests.kit.tasks.noop": {"queue": "routed"}}])
    monkeypatch.setattr(noop.app.amqp.router, "routes", routes)
    found = [job(session, enqueue(noop.s(), queue=queue)) for queue in (None, "mail")]
    assert [each.queue for each in found if each] == ["routed", "mail"]


def test_a_queue_of_celery_is_taken_by_its_name(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `apply_async` has it. Its words, such as '<unbound Queue mail>', are a queue that no worker takes."""
    mail: Any = kombu.Queue("mail")
    routes = celery_routes.prepare([{"tests.kit.tasks.noop": {"queue": kombu.Queue("routed")}}])
    monkeypatch.setattr(noop.app.amqp.router, "routes", routes)
    ids = [enqueue(noop.s(), queue=mail), enqueue(noop.s().set(queue=mail)), enqueue(noop.s())]
    ids += [*enqueue_many([noop.s().set(queue=mail)]), *enqueue_many([noop.s()], queue=mail)]
    monkeypatch.setattr(noop, "queue", mail, raising=False)
    ids.append(enqueue(noop.s()))
    found = [job(session, each) for each in ids]
    assert [each.queue for each in found if each] == ["mail", "mail", "routed", "mail", "mail", "mail"]
    periodic(noop.s(), every="1h", queue=mail, session=session)
    assert session.get_one(PeriodicJob, noop.name).queue == "mail"


class Named(enum.StrEnum):
    MAIL = "mail"


@pytest.mark.parametrize("queue", [kombu.Queue(), 5, object(), "a,b", kombu.Queue("a,b"), kombu.Queue("actor.x")])
def test_what_is_no_queue_that_a_worker_could_take_is_refused(session: Session, queue: Any) -> None:
    for signature, words in ((noop.s(), {"queue": queue}), (noop.s().set(queue=queue), {})):
        with pytest.raises(BadRequest, match=r"^queue=.{1,200}(must be text|has a comma|jobs cannot go)"):
            enqueue(signature, **words)
    assert job(session, enqueue(noop.s(), queue=Named.MAIL)).queue == "mail"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("signature", "error"),
    [
        (chain(noop.s(), noop.s()), Unsupported),
        (group(noop.s(), noop.s()), Unsupported),
        (chord([noop.s()], noop.s()), Unsupported),
        (celery_app.signature("no.such.task"), UnknownTask),
        (noop, BadRequest),
        ("tests.kit.tasks.noop", BadRequest),
        (None, BadRequest),
    ],
    ids=["chain", "group", "chord", "unknown", "task", "name", "none"],
)
def test_what_is_no_single_known_task_is_refused(session: Session, signature: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        enqueue(signature)
    assert count(session) == 0


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"queue": ""}, BadRequest),
        ({"key": ""}, BadRequest),
        ({"key": "x" * 501}, TooLarge),
        ({"key": "\ud800"}, BadRequest),
        ({"priority": 40000}, BadRequest),
        ({"priority": "high"}, BadRequest),
        ({"max_attempts": 0}, BadRequest),
        ({"max_attempts": 40000}, BadRequest),
        ({"eta": datetime(2026, 1, 1)}, BadRequest),  # noqa: DTZ001
        ({"eta": "soon"}, BadRequest),
        ({"eta": datetime.max.replace(tzinfo=timezone(-timedelta(hours=12)))}, BadRequest),
        ({"expires": datetime.min.replace(tzinfo=UTC)}, BadRequest),
        ({"eta": timedelta(days=9_000_000)}, BadRequest),
        ({"expires": -1e13}, BadRequest),
        ({"session": "not one"}, BadRequest),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_wrong_words_are_refused_at_the_call(session: Session, words: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        enqueue(noop.s(), **words)
    assert count(session) == 0


def test_arguments_without_a_json_form_are_refused_and_the_transaction_lives(own: Session, session: Session) -> None:
    with pytest.raises(NotJson, match=r"arguments of tests\.kit\.tasks\.record: \{1\} has no JSON form"):
        enqueue(record.s({1}), session=own)
    with pytest.raises(TooLarge):
        enqueue(record.s("x" * 2**20), session=own)
    enqueue(record.s("fine"), session=own)
    own.commit()
    assert count(session) == 1


@given(strategies.json_values)
@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arguments_come_back_to_the_letter(session: Session, value: Any) -> None:
    # J5: floats, NUL and all.
    found = job(session, enqueue(sleep_for.s(value, value=value)))
    assert found is not None
    assert (found.args, found.kwargs) == ([value], {"value": value})


# Many at once.

WORDS = ("task", "queue", "args", "kwargs", "priority")


def test_many_go_in_with_one_statement_and_come_back_in_order(session: Session, rung: list[str]) -> None:
    ids = enqueue_many((record.s(i) for i in range(2500)), queue="bulk", priority=3)
    assert ids == sorted(ids)
    assert len(set(ids)) == 2500
    rows = session.execute(sa.select(Job.id, Job.args, Job.queue, Job.rank).order_by(Job.id)).all()
    assert [(row.id, row.args[0]) for row in rows] == list(zip(ids, range(2500), strict=True))
    assert {(row.queue, row.rank) for row in rows} == {("bulk", -3)}
    assert rung == ["bulk"]


def test_many_are_all_or_none(own: Session, session: Session) -> None:
    with pytest.raises(NotJson):
        enqueue_many([noop.s(), record.s({1})])
    enqueue_many([noop.s(), record.s(1)], session=own)
    own.rollback()
    assert count(session) == 0
    assert enqueue_many([]) == []


def test_many_of_different_tasks_keep_their_own_words(session: Session) -> None:
    ids = enqueue_many([noop.s(), crash.s().set(queue="mail")], eta=60)
    rows = [job(session, each) for each in ids]
    assert [(row.queue, row.max_attempts) for row in rows if row] == [("jobs", 4), ("mail", 3)]
    assert {row.due_at - row.enqueued_at for row in rows if row and row.due_at} == {timedelta(minutes=1)}


@pytest.mark.parametrize("differ", [each for n in range(6) for each in combinations(WORDS, n)], ids="-".join)
def test_many_of_which_some_words_are_the_same(session: Session, differ: tuple[str, ...]) -> None:
    # What all of them share is said once, however the rest differs.
    def one(second: bool) -> Any:  # noqa: FBT001 - the first or the second of two
        other = {word for word in differ if second}
        kwargs = {"value": None} if "kwargs" in other else {}
        signature = (flaky if "task" in other else sleep_for).s('say "no"' if "args" in other else 1, **kwargs)
        return signature.set(queue="mail" if "queue" in other else "bulk", priority=7 if "priority" in other else 0)

    signatures = [one(second) for second in (False, True, False)]
    rows = [job(session, each) for each in enqueue_many(signatures)]
    assert [(row.task, row.args, row.kwargs, row.queue, row.rank, row.max_attempts) for row in rows if row] == [
        (
            *(each.task, list(each.args), each.kwargs, each.options["queue"], -each.options["priority"]),
            each.type.max_retries + 1,
        )
        for each in signatures
    ]


def test_a_call_that_the_function_cannot_take_is_refused_at_once(session: Session) -> None:
    for signature in (sleep_for.s(), noop.s(1), record.s("x", nonsense=1)):
        with pytest.raises(BadRequest, match=rf"^{signature.task} cannot be called so: .+ argument"):
            enqueue(signature)
        with pytest.raises(BadRequest, match="cannot be called so"):
            enqueue_many([noop.s(), signature])
    assert count(session) == 0
    # Each of a batch has what arguments it likes.
    assert enqueue_many([together.s(), together.s(1, 2), together.s(x=1)])


def test_a_task_of_the_program_itself_is_told_once(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """No worker imports it under this name."""

    def of_a_script() -> None:
        pass

    task = noop.app.task(name="__main__.of_a_script")(of_a_script)
    try:
        assert job(session, enqueue(task.s()))
        enqueue_many([task.s(), task.s()])
        told = [each.getMessage() for each in caplog.records if "__main__.of_a_script" in each.getMessage()]
        assert len(told) == 1
        assert "define it in a module of TIDEMILL_MODULES" in told[0]
    finally:
        del noop.app.tasks["__main__.of_a_script"]


# The state (J6).


@pytest.mark.parametrize("word", ["done", "WAITING", "", "parked "])
def test_an_unknown_state_is_refused_by_the_database(session: Session, word: str) -> None:
    # J6
    job_id = enqueue(noop.s())
    with pytest.raises(sa.exc.DataError, match="invalid input value for enum"):
        session.execute(
            sa.text("UPDATE tidemill.job SET state = :word WHERE id = :id").bindparams(word=word, id=job_id)
        )
    session.rollback()
    assert session.execute(sa.text("SELECT enum_range(NULL::tidemill.job_state)::text")).scalar_one() == (
        "{waiting,running,parked}"
    )
    cancel(job_id)


def test_a_transaction_that_is_over_takes_nothing(session: Session) -> None:
    with transaction() as over:
        pass
    with pytest.raises(sa.exc.InvalidRequestError, match="closed"):
        enqueue(noop.s(), session=over)


def test_one_signature_is_not_many(session: Session) -> None:
    with pytest.raises(BadRequest, match="one signature"):
        enqueue_many(noop.s())  # type: ignore[arg-type]
