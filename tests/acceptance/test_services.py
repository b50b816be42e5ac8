"""The services: any number of schedulers and beats, one leader for each duty; limits that hold for the cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import combinations, pairwise
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import limits
from app.jobs.model import Outcome
from tests.kit import rows, tasks
from tests.kit.process import Process, Processes
from tests.kit.waiting import never_within, wait_until
from tidemill import enqueue, enqueue_many, periodic, transaction, wait

_SPANS = sa.text("SELECT begun_at, ended_at FROM public.execution ORDER BY begun_at")


def _leads(scheduler: Process) -> bool:
    """By the last word of its log on the duty."""
    said = re.findall(r"(no longer leader|leader) of dispatch", scheduler.log)
    return bool(said) and said[-1] == "leader"


def test_a_standby_takes_over_from_a_dead_leader(env: dict[str, str], processes: Processes) -> None:
    first = processes.scheduler(env)
    first.wait_for("leader of dispatch")
    second = processes.scheduler(env)
    assert never_within(lambda: _leads(second), 1)
    first.kill()
    second.wait_for("leader of dispatch")


def test_a_frozen_leader_loses_its_duties(env: dict[str, str], processes: Processes, session: Session) -> None:
    """Its session ends; when it wakes up, it is a standby."""
    first = processes.scheduler(env)
    first.wait_for("leader of dispatch")
    second = processes.scheduler(env)
    first.stop()
    second.wait_for("leader of dispatch", 300)
    first.cont()
    processes.celery_worker(env)
    assert wait(enqueue(tasks.record.s("x")), 60).outcome is Outcome.DONE
    wait_until(lambda: "failed, the next try" in first.log, 300)
    assert never_within(lambda: first.log.count(": leader of dispatch") > 1, 1)
    for scheduler in (first, second):
        scheduler.terminate()
        assert scheduler.wait() == 0, scheduler.log


def test_periodic_jobs_fire_once_a_slot_through_beat_and_scheduler(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    """J9: two beats, a scheduler that is killed, and its successor."""
    periodic(tasks.record.s("tick"), every="1s", catch_up="all")
    processes.celery_worker(env)
    first = processes.scheduler(env)
    for _ in range(2):
        processes.beat(env)
    wait_until(lambda: len(rows.executions(session)) >= 2, 300)
    first.kill()
    processes.scheduler(env)
    wait_until(lambda: len(rows.executions(session)) >= 5, 300)
    session.rollback()
    query = "SELECT key, count(*) FROM tidemill.job_log GROUP BY key HAVING count(*) > 1"
    assert session.execute(sa.text(query)).all() == [], "a slot fired twice"
    assert set(rows.executions(session)) == {("record", "tick")}
    # With those that wait or run: children end them in any order.
    slots = session.execute(
        sa.text(
            "SELECT substr(key, 33)::timestamptz FROM "
            "(SELECT key FROM tidemill.job_log UNION SELECT key FROM tidemill.job) AS fired ORDER BY 1"
        )
    ).scalars()
    times: list[datetime] = list(slots)
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(seconds=1)}


def _spans(session: Session) -> Sequence[Any]:
    session.rollback()
    return session.execute(_SPANS).all()


def _most_at_once(spans: Sequence[Any]) -> int:
    return max(sum(1 for begun, ended in spans if begun <= at < ended) for at, _ in spans)


def test_max_parallel_holds_for_the_cluster(env: dict[str, str], processes: Processes, session: Session) -> None:
    """With 4 workers of 2 slots that claim at once: never more than 3, and 3 are used."""
    with transaction() as tx:
        limits.configure(tx, "jobs", max_parallel=3)
    workers = [processes.celery_worker(env, ready=False) for _ in range(4)]
    for worker in workers:
        worker.wait_for("ready")
    processes.scheduler(env)
    ids = enqueue_many([tasks.sleep_for.s(0.1) for _ in range(40)])
    wait_until(lambda: rows.count(session) == 0, 300)
    spans = _spans(session)
    assert len(spans) == len(ids)
    assert _most_at_once(spans) == 3


def test_rate_holds_for_the_cluster(env: dict[str, str], processes: Processes, session: Session) -> None:
    """No span of time has more than the rate and the burst allow; and the rate is used."""
    with transaction() as tx:
        limits.configure(tx, "jobs", rate="10/s")
    workers = [processes.celery_worker(env, ready=False) for _ in range(4)]
    for worker in workers:
        worker.wait_for("ready")
    processes.scheduler(env)
    enqueue_many([tasks.record.s(number) for number in range(45)])
    wait_until(lambda: rows.count(session) == 0, 300)
    begun = [span.begun_at for span in _spans(session)]
    # A call notes its own start, late by what a worker of a loaded machine needs for it.
    spans = ((last - first, (begun[last] - begun[first]).total_seconds()) for first, last in combinations(range(45), 2))
    assert all(calls <= 1 + 10 * (seconds + 2) for calls, seconds in spans)
    assert 45 / (begun[-1] - begun[0]).total_seconds() > 1, "the rate is used"


def test_pause_and_resume_at_run_time(env: dict[str, str], processes: Processes, session: Session) -> None:
    with transaction() as tx:
        limits.configure(tx, "jobs", paused=True)
    processes.celery_worker(env)
    processes.scheduler(env)
    job_id = enqueue(tasks.record.s("held"))
    assert never_within(lambda: rows.executions(session), 1)
    with transaction() as tx:
        limits.configure(tx, "jobs", paused=False)
    assert wait(job_id, 300).outcome is Outcome.DONE
