"""Producers in any language enqueue with `tidemill.enqueue`, by the same rules as in Python (J10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.jobs import JobId, enqueue, known
from app.jobs.known import Known
from app.jobs.model import Job, KnownTask
from tests.kit.database import Databases
from tests.kit.rows import count, job
from tests.kit.tasks import record
from tests.kit.waiting import wait_until

TASK = "tests.kit.tasks.record"


@pytest.fixture(autouse=True)
def _known(session: Session) -> None:
    known.register(session, [Known(TASK, "jobs", 4), Known("mail.send", "mail", 2)])
    session.commit()


def call(session: Session, words: str, **values: Any) -> JobId:
    """By names, as the documentation shows."""
    return JobId(session.execute(sa.text(f"SELECT tidemill.enqueue({words})").bindparams(**values)).scalar_one())


def test_one_argument_is_enough(session: Session) -> None:
    # J10
    found = job(session, call_and_commit(session, "'mail.send'"))
    assert found is not None
    assert (found.queue, found.max_attempts, found.args, found.kwargs, found.rank) == ("mail", 2, [], {}, 0)
    assert found.due_at == found.enqueued_at


def test_a_newer_call_with_its_key_takes_nothing_of_the_older(session: Session) -> None:
    """Also not the trace of whoever put that in."""
    older = call_and_commit(session, "'mail.send', key => 'k'")
    change = {"trace": "00-1-1-01", "attempts": 2, "error": "once"}
    session.execute(sa.update(Job).where(Job.id == older).values(**change))
    session.commit()
    assert call_and_commit(session, "'mail.send', '[7]', key => 'k'") == older
    found = job(session, older)
    assert found is not None
    assert (found.args, found.trace, found.attempts, found.error) == ([7], None, 0, None)


def call_and_commit(session: Session, words: str, **values: Any) -> JobId:
    found = call(session, words, **values)
    session.commit()
    return found


def test_a_queue_that_no_worker_could_name_is_refused(session: Session) -> None:
    with pytest.raises(sa.exc.DataError, match="queue 'a,b' has a comma"):
        call(session, "'mail.send', queue => 'a,b'")


def test_every_argument_by_name(session: Session) -> None:
    words = (
        "task => 'mail.send', args => '[1, 2.50]', kwargs => '{\"a\": null}', queue => 'q', key => 'k', "
        "eta => '2030-01-01Z', priority => 7, expires => '2031-01-01Z', max_attempts => 9"
    )
    found = job(session, call_and_commit(session, words))
    assert found is not None
    assert (found.args, found.kwargs, found.queue, found.key, found.rank) == ([1, 2.5], {"a": None}, "q", "k", -7)
    assert (found.max_attempts, found.due_at and found.due_at.year) == (9, 2030)
    assert found.expires_at is not None
    assert found.expires_at.year == 2031


def test_it_makes_the_row_that_python_makes(session: Session) -> None:
    words = "task => :task, args => :args, kwargs => :kwargs, priority => 3, queue => 'q'"
    theirs = call_and_commit(session, words, task=TASK, args=json.dumps([[1.5, "ж"]]), kwargs="{}")
    ours = enqueue(record.s([1.5, "ж"]), priority=3, queue="q")
    varying = {"id", "enqueued_at", "due_at"}
    rows = [{c.name: getattr(job(session, each), c.name) for c in Job.__table__.columns} for each in (theirs, ours)]
    assert {k: v for k, v in rows[0].items() if k not in varying} == {
        k: v for k, v in rows[1].items() if k not in varying
    }


def test_it_belongs_to_the_transaction_of_the_caller(session: Session) -> None:
    # J1 J10
    call(session, "'mail.send'")
    session.rollback()
    assert count(session) == 0


def test_a_key_is_taken_over_from_python_and_back(session: Session) -> None:
    first = enqueue(record.s("python"), key="k", priority=5)
    assert call_and_commit(session, "task => :task, args => '[\"sql\"]', key => 'k'", task=TASK) == first
    found = job(session, first)
    assert found is not None
    assert (found.args, found.rank) == (["sql"], -5)
    assert enqueue(record.s("python"), key="k") == first
    assert count(session) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("'no.such.task'", "no task named 'no.such.task' is known"),
        ("null", "no task named null is known"),
        ("'mail.send', '{}'", "args must be a JSON array"),
        ("'mail.send', null", "args must be a JSON array"),
        ("'mail.send', '[', '{}'", "invalid input syntax for type json"),
        ("'mail.send', '[]', '[]'", "kwargs must be a JSON object"),
        ("'mail.send', kwargs => null", "kwargs must be a JSON object"),
        ("'mail.send', priority => 32768", "priority 32768 must lie between"),
        ("'mail.send', priority => null", "priority <NULL> must lie between"),
        ("'mail.send', max_attempts => 0", "max_attempts 0 must lie between 1 and 32767"),
        ("'mail.send', max_attempts => 32768", "max_attempts 32768 must lie between"),
        ("'mail.send', key => ''", "key and queue must have 1 to 500 characters"),
        ("'mail.send', key => repeat('x', 501)", "key and queue must have 1 to 500 characters"),
        ("'mail.send', queue => ''", "key and queue must have 1 to 500 characters"),
        ("'mail.send', queue => '  '", "key and queue must have 1 to 500 characters"),
        ("'mail.send', json_build_array(repeat('x', 1048576))", r"take \d+ bytes of JSON, more than 1048576"),
        ("'mail.send', eta => 'infinity'", "eta"),
        ("'mail.send', eta => '20000-01-01Z'", "eta"),
        ("'mail.send', expires => 'infinity'", "expires"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(session: Session, words: str, said: str) -> None:
    # J10
    with pytest.raises(sa.exc.DBAPIError, match=said):
        call(session, words)
    session.rollback()
    assert count(session) == 0


def test_known_tasks_are_renewed_not_removed(session: Session) -> None:
    known.register(session, [Known("mail.send", "post", 7)])
    session.commit()
    found = {row.name: (row.queue, row.max_attempts) for row in session.execute(sa.select(KnownTask)).scalars()}
    assert found == {TASK: ("jobs", 4), "mail.send": ("post", 7)}
    assert known.register(session, []) == 0


# Rights: a role that may only call the function.


@pytest.fixture
def producer(engine: Engine, databases: Databases) -> Iterator[Session]:
    name = f"producer_{engine.url.database}"
    with databases.admin.connect() as admin:
        admin.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA tidemill TO {name}")
        connection.exec_driver_sql(f"GRANT EXECUTE ON FUNCTION tidemill.enqueue TO {name}")
    theirs = sa.create_engine(engine.url.set(username=name, password="p"), poolclass=sa.NullPool)
    with Session(theirs) as found:
        yield found
    with engine.begin() as connection:
        connection.exec_driver_sql(f"REVOKE ALL ON FUNCTION tidemill.enqueue FROM {name}")
        connection.exec_driver_sql(f"REVOKE ALL ON SCHEMA tidemill FROM {name}")
    with databases.admin.connect() as admin:
        admin.exec_driver_sql(f"DROP ROLE {name}")


def test_a_role_that_may_only_enqueue_can(producer: Session, session: Session) -> None:
    # J10
    job_id = call_and_commit(producer, "'mail.send', '[1]', key => 'k'")
    assert call_and_commit(producer, "'mail.send', '[2]', key => 'k'") == job_id
    found = job(session, job_id)
    assert found is not None
    assert found.args == [2]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM tidemill.job",
        "INSERT INTO tidemill.job (task, queue) VALUES ('t', 'q')",
        "DELETE FROM tidemill.job",
        "SELECT * FROM tidemill.known_task",
        "SELECT * FROM tidemill.job_log",
    ],
)
def test_and_nothing_else(producer: Session, statement: str) -> None:
    with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
        producer.execute(sa.text(statement))


def test_not_everybody_may_call_it(session: Session) -> None:
    allowed = sa.text("SELECT has_function_privilege('public', oid, 'EXECUTE') FROM pg_proc WHERE proname = 'enqueue'")
    assert session.execute(allowed).scalar_one() is False


def test_objects_of_the_caller_do_not_get_between(producer: Session, session: Session) -> None:
    """It runs with its owner's rights, so what it names must not be looked up where the caller can write."""
    producer.execute(sa.text("CREATE TEMP TABLE known_task (name text, queue text, max_attempts int)"))
    producer.execute(sa.text("INSERT INTO known_task VALUES ('evil', 'evil', 1)"))
    producer.execute(sa.text("SET search_path = pg_temp, public"))
    with pytest.raises(sa.exc.DBAPIError, match="no task named 'evil' is known"):
        call(producer, "'evil'")


def test_a_span_of_sql_is_a_time(session: Session) -> None:
    found = job(session, call_and_commit(session, "'mail.send', eta => now() + interval '90 s'"))
    assert found is not None
    assert found.due_at is not None
    assert found.due_at - found.enqueued_at == timedelta(seconds=90)
    wait_until(lambda: count(session) == 1)
