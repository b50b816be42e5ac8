"""Reactive tasks through real workers, with beat or the scheduler or both: from the control table to user code."""

from __future__ import annotations

import re

import psycopg2
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from app import db, registration
from app.celery import app as celery_app
from app.errors import BadRequest, Unsupported
from app.jobs.model import Outcome
from tests.conftest import child_environment
from tests.kit import tasks
from tests.kit import warehouse as w
from tests.kit.process import Processes
from tests.kit.waiting import never_within, wait_until
from tidemill import enqueue, enqueue_many, wait
from triggers import operate, polling

SECONDS = 300


@pytest.fixture
def env(env: dict[str, str]) -> dict[str, str]:
    return quick(env)


def quick(env: dict[str, str]) -> dict[str, str]:
    return env | {
        "TIDEMILL_MODULES": w.MODULES,
        "TIDEMILL_POLL_INTERVAL": "200ms",
        "TIDEMILL_SWEEP_INTERVAL": "200ms",
    }


def _comes_to(session: Session, task: str, steps: list[tuple[int | None, int]]) -> None:
    wait_until(lambda: w.steps(session, task, ended=True) == steps, SECONDS, f"{task} has run for {steps}")


def _started_by_hand(session: Session, task: str) -> None:
    """By a pass of this process: where no service makes one."""
    wait_until(lambda: w.registered(session, task), SECONDS)
    assert polling.run_once().started >= 1


@pytest.mark.parametrize("services", ["beat", "scheduler", "both"])
def test_new_data_starts_a_task(services: str, env: dict[str, str], processes: Processes, session: Session) -> None:
    """T1, T17: one run for each piece of news, whoever makes the passes; each processes what is new to it (T25)."""
    processes.celery_worker(env)
    if services != "scheduler":
        processes.beat(env)
    if services != "beat":
        processes.scheduler(env)
    w.load("plain", 1)
    _comes_to(session, "plain", [(None, 1)])
    w.load("plain", 5)
    _comes_to(session, "plain", [(None, 1), (1, 5)])
    w.load("exact", 7)
    # What it delivers starts the next task.
    _comes_to(session, "mart", [(None, 7)])
    assert never_within(lambda: w.calls(session, "plain") > 2 or w.calls(session, "mart") > 1, 0.6)
    wait_until(lambda: w.states(session, "plain") == ["done", "done"], SECONDS)
    assert w.last_seen(session, "plain") == w.at(5)


def test_the_end_of_a_run_is_evaluated_at_once(env: dict[str, str], processes: Processes, session: Session) -> None:
    """T16: what moved while it ran does not wait for a pass; here there is none."""
    processes.celery_worker(env, concurrency=1)
    w.load("gated", 1)
    _started_by_hand(session, "gated")
    wait_until(lambda: w.steps(session, "gated") == [(None, 1)], SECONDS)
    w.load("gated", 2)
    w.load("gated", 3)
    assert polling.run_once().started == 0, "it runs"
    w.open_gate("gated")
    _comes_to(session, "gated", [(None, 1), (1, 3)])
    wait_until(lambda: w.states(session, "gated") == ["done", "done"], SECONDS)


def test_what_a_run_delivers_starts_the_next_task_by_the_next_pass(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    processes.celery_worker(env)
    w.load("exact", 1)
    _started_by_hand(session, "exact")
    _comes_to(session, "exact", [(None, 1)])
    wait_until(lambda: w.states(session, "exact") == ["done"], SECONDS)
    assert polling.run_once().started == 1
    _comes_to(session, "mart", [(None, 1)])


def test_sql_starts_a_task(env: dict[str, str], processes: Processes, session: Session, database_url: str) -> None:
    """As psql would: a plain connection, nothing of ours."""
    processes.celery_worker(env)
    processes.scheduler(env)
    url = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute("select tidemill.advance('src.plain', 'loaded_to', '2026-07-01 00:00:00.004+00')")
    finally:
        connection.close()
    _comes_to(session, "plain", [(None, 4)])


def test_reactive_tasks_run_on_every_broker(database_url: str, any_broker_url: str, processes: Processes) -> None:
    env = quick(child_environment(database_url, any_broker_url))
    processes.celery_worker(env)
    processes.scheduler(env)
    w.load("plain", 1)
    with Session(db.engine()) as session:
        _comes_to(session, "plain", [(None, 1)])


def test_reactive_tasks_run_on_every_postgres(any_database_url: str, broker_url: str, processes: Processes) -> None:
    env = quick(child_environment(any_database_url, broker_url))
    processes.celery_worker(env)
    processes.scheduler(env)
    w.load("exact", 1)
    with Session(db.engine()) as session:
        _comes_to(session, "mart", [(None, 1)])


def test_celery_knows_the_function_under_its_own_name(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    worker = processes.celery_worker(env, name="known")
    node = re.findall(r"(known@\S+) ready", worker.log)[0]
    inspect = ("--timeout=60", f"--destination={node}")
    asked = processes.celery(env, "inspect", "registered", *inspect, name="inspect")
    queues = processes.celery(env, "inspect", "active_queues", *inspect, name="queues")
    assert asked.wait() == queues.wait() == 0
    assert "tests.kit.warehouse.plain" in asked.log
    assert set(re.findall(r"'name': '(reactive\.\w+)', 'exchange'", queues.log)) == {
        "reactive.default",
        "reactive.apart",
        "reactive.crowd",
    }
    w.load("plain", 1)
    _started_by_hand(session, "plain")
    _comes_to(session, "plain", [(None, 1)])
    run = w.of_run(session, "plain").id
    worker.wait_for(rf"signal: prerun of tests\.kit\.warehouse\.plain\[run-{run}\]")
    worker.wait_for(r"signal: success of tests\.kit\.warehouse\.plain")
    worker.wait_for(rf"Task tests\.kit\.warehouse\.plain\[run-{run}\] succeeded")
    assert "Traceback" not in worker.log


def test_a_worker_with_queues_takes_only_those(env: dict[str, str], processes: Processes, session: Session) -> None:
    processes.celery_worker(env, queues=["reactive.apart"])
    processes.scheduler(env)
    w.load("plain", 1)
    w.load("apart", 1)
    _comes_to(session, "apart", [(None, 1)])
    wait_until(lambda: w.states(session, "plain") == ["waiting"], SECONDS)
    assert never_within(lambda: w.calls(session, "plain"), 0.5)
    processes.celery_worker(env, queues=["reactive.default"])
    _comes_to(session, "plain", [(None, 1)])


def test_celery_tasks_become_reactive(env: dict[str, str], processes: Processes, session: Session) -> None:
    """With and without `bind`; `self.retry` and `autoretry_for` mean what they always do."""
    processes.celery_worker(env, concurrency=4)
    processes.scheduler(env)
    names = ("knows_nothing", "bound", "flaky", "later")
    for task in names:
        w.load(task, 1)
    for task in names:
        wait_until(lambda task=task: w.states(session, task) == ["done"], SECONDS, task)  # type: ignore[misc]
    assert w.calls(session, "knows_nothing") == 1
    assert w.steps(session, "bound") == w.steps(session, "flaky") == [(None, 1)] * 3
    assert [w.last_seen(session, task) for task in names] == [w.at(1)] * 4
    assert [w.of_task(session, task).failures for task in names] == [0] * 4
    begun = sa.text("SELECT max(begun_at) - min(begun_at) FROM public.execution WHERE task = 'later'")
    assert session.execute(begun).scalar_one().total_seconds() > 0.9, "not before the time that it said"
    # It is a Celery task still, which may be a job too.
    assert wait(enqueue(w.knows_nothing.s()), SECONDS).outcome is Outcome.DONE
    assert w.calls(session, "knows_nothing") == 2


@pytest.mark.parametrize("task", ["limited", "short", "shorter"])
def test_time_limits_hold(task: str, env: dict[str, str], processes: Processes, session: Session) -> None:
    """Said by @reactive of a function, by the Celery task, by @reactive of a Celery task."""
    worker = processes.celery_worker(env, concurrency=1)
    w.load(task, 1)
    _started_by_hand(session, task)
    wait_until(lambda: w.states(session, task) == ["failed"], SECONDS)
    assert "over its time limit of 1 s" in w.of_run(session, task).error
    assert w.last_seen(session, task) is None
    assert w.of_task(session, task).quarantine_reason.startswith("failed 1 times in a row: over its time limit")
    assert "Traceback" not in worker.log


def test_a_failing_task_is_tried_again_and_quarantined(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """T22: the same run; new input releases it."""
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    w.load("failing", 1)
    wait_until(lambda: w.states(session, "failing") == ["failed"], SECONDS)
    assert w.steps(session, "failing") == [(None, 1), (None, 1)]
    assert "RuntimeError: failed on purpose" in w.of_run(session, "failing").error
    assert "in failing" in w.of_run(session, "failing").traceback
    assert never_within(lambda: w.calls(session, "failing") > 2, 0.6)
    w.load("failing", 2)
    wait_until(lambda: w.steps(session, "failing") == [(None, 1)] * 2 + [(None, 2)] * 2, SECONDS)


def test_a_run_that_cancels_itself_waits_for_new_input(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    worker = processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    w.load("gives_up", 1)
    wait_until(lambda: w.states(session, "gives_up") == ["cancelled"], SECONDS)
    assert w.of_run(session, "gives_up").error == "nothing to do on this day"
    assert never_within(lambda: w.calls(session, "gives_up") > 1, 0.6)
    w.load("gives_up", 2)
    wait_until(lambda: w.steps(session, "gives_up") == [(None, 1), (None, 2)], SECONDS)
    assert w.last_seen(session, "gives_up") is None
    assert "Traceback" not in worker.log


def test_cancel_stops_a_run_and_frees_its_slot(env: dict[str, str], processes: Processes, session: Session) -> None:
    worker = processes.celery_worker(env | {"TIDEMILL_LEASE": "10s"}, concurrency=1)
    w.load("gated", 1)
    _started_by_hand(session, "gated")
    wait_until(lambda: w.calls(session, "gated") == 1, SECONDS)
    operate.cancel(w.full_name("gated"), reason="not today")
    # The only slot of the worker.
    w.load("plain", 1)
    polling.run_once()
    _comes_to(session, "plain", [(None, 1)])
    assert w.states(session, "gated") == ["cancelled"]
    assert w.of_run(session, "gated").error == "not today"
    assert w.last_seen(session, "gated") is None
    worker.wait_for("lost the claim on")
    assert "Traceback" not in worker.log


def test_pause_and_resume(env: dict[str, str], processes: Processes, session: Session) -> None:
    processes.celery_worker(env, concurrency=1)
    processes.scheduler(env)
    wait_until(lambda: w.registered(session, "plain"), SECONDS)
    operate.pause(w.full_name("plain"))
    w.load("plain", 1)
    assert never_within(lambda: w.states(session, "plain"), 0.6)
    operate.resume(w.full_name("plain"))
    _comes_to(session, "plain", [(None, 1)])


_SPANS = sa.text("SELECT begun_at, ended_at FROM public.execution WHERE task LIKE 'crowd%' ORDER BY begun_at")


def _crowd_ended(session: Session) -> int:
    session.rollback()
    return sum(ended is not None for _, ended in session.execute(_SPANS))


def test_a_pool_never_runs_more_than_it_may(env: dict[str, str], processes: Processes, session: Session) -> None:
    """T20: 50 triggers fire in one pass, 6 slots on 3 workers, max_parallel=3."""
    w.load("crowd", 1)
    workers = [processes.celery_worker(env, ready=False) for _ in range(3)]
    for worker in workers:
        worker.wait_for("ready")
    processes.scheduler(env)
    wait_until(lambda: _crowd_ended(session) == w.CROWD, 300)
    session.rollback()
    spans = session.execute(_SPANS).all()
    assert len(spans) == w.CROWD
    assert 1 < max(sum(begun <= at < ended for begun, ended in spans) for at, _ in spans) <= 3
    assert len({worker.name for worker in workers if "crowd_" in worker.log}) > 1, "more than one worker took part"


def test_a_reactive_function_is_not_sent_and_not_enqueued(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    name = w.full_name("plain")
    task = celery_app.tasks[name]
    for send in (task.delay, task.apply_async, task.s, task.si):
        with pytest.raises(Unsupported, match=f"{name} cannot be sent or enqueued: its trigger starts it"):
            send()
    with pytest.raises(Unsupported, match=f"by hand: tidemill reactive run {name}$"):
        task.delay()
    worker = processes.celery_worker(env, concurrency=1)
    sent = processes.celery(env, "call", name, "--queue=reactive.default", name="call")
    assert sent.wait() == 0
    worker.wait_for(f"a message was dropped: {name} cannot be sent or enqueued: its trigger starts it")
    assert "Traceback" not in worker.log
    w.load("plain", 1)
    _started_by_hand(session, "plain")
    _comes_to(session, "plain", [(None, 1)])


def test_no_job_goes_into_the_queue_of_a_pool(session: Session) -> None:
    """In Python and in SQL; and a reactive function is no job under its bare name either."""
    for put in (
        lambda: enqueue(tasks.record.s(1), queue="reactive.default"),
        lambda: enqueue(tasks.record.s(1).set(queue="reactive.default")),
        lambda: enqueue_many([tasks.record.s(1)], queue="reactive.default"),
    ):
        with pytest.raises(BadRequest, match=r"'reactive\.default': jobs cannot go to queues whose name begins with"):
            put()
    name = w.full_name("plain")
    with pytest.raises(Unsupported, match=f"{name} cannot be sent or enqueued: its trigger starts it"):
        enqueue(celery_app.signature(name))
    registration.write(celery_app)
    sql = "SELECT tidemill.enqueue('tests.kit.tasks.record', queue => 'reactive.default')"
    for statement, said in {sql: "reactive", f"SELECT tidemill.enqueue('{name}')": f"no task named '{name}'"}.items():
        with pytest.raises(sa.exc.DBAPIError, match=said):
            session.execute(sa.text(statement))
        session.rollback()
    assert session.execute(sa.text("SELECT count(*) FROM tidemill.job")).scalar_one() == 0
