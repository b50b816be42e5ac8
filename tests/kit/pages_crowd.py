"""Very much of everything, for pages: 10 000 reactive tasks, 300 000 visits, 30 000 processes, 100 000 jobs and a log.

It comes beside what `tests.kit.pages_world` has made, of which lists show their first page.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.jobs.model import JOB
from tests.kit import reactive_crowd
from tests.kit.copying import analyzed, copy

VISITS, PROCESSES, JOBS, LOG, AUDIT = 300_000, 30_000, 100_000, 100_000, 10_000
#: In a lane, running or parked, of visits; of processes, broken or active.
FEW = 1_000
#: A process with very many tasks.
LARGE_ONE, TASKS = 29_999, 10_000
LARGE = reactive_crowd.BIG | {
    *("stage_visit", "process", "graph", "task", "decision", "broken_task", "job", "job_log", "audit"),
}
MAIL = "mail.send"
CALLED = '{"args": ["order"], "kwargs": {}}'


def keep_numbers(engine: Engine) -> None:
    """Before anything else is there: processes of later on are newer than those of the crowd."""
    sequence = sa.func.pg_get_serial_sequence("tidemill.process", "id")
    with engine.begin() as connection:
        connection.execute(sa.select(sa.func.setval(sequence, PROCESSES)))


def fill(engine: Engine) -> dict[str, int]:
    """Names of its first jobs, one that is parked and such that wait, and of its large process."""
    now = datetime.now(UTC)
    reactive_crowd.fill(engine, runs=3, steps=2)
    copy(
        engine,
        "stage_visit",
        "kind, entity_id, stage, shard, queue, state, due_at, low_at, error, failed_at",
        _visits(now),
    )
    _processes(engine, now)
    job = _jobs(engine, now)
    copy(
        engine,
        "audit",
        "actor, action, subject",
        (("root@host", "queue.pause", f"queue-{i % 2000}") for i in range(AUDIT)),
    )
    analyzed(engine)
    return {f"job_{i}": job + i for i in range(5)} | {"large": LARGE_ONE}


def _visits(now: datetime) -> Iterator[tuple[object, ...]]:
    """Most wait for their timers."""
    for i in range(VISITS):
        parked, low = i % FEW == 1, i % FEW == 2
        at = now + timedelta(seconds=i - FEW)
        yield (
            *("voucher", f"c{i}", "predict", i % 16, "stage.voucher.predict", "parked" if parked else "waiting"),
            *(None if low else at, at if low else None),
            *((f"ValueError: no price of {i}", now - timedelta(seconds=i)) if parked else (None, None)),
        )


def _processes(engine: Engine, now: datetime) -> None:
    """Each has two tasks, the second of which is charged for."""
    states = {i: _state(i) for i in range(1, PROCESSES + 1)}
    times = {i: now - timedelta(seconds=2 * (PROCESSES + 30 - i)) for i in states}
    copy(
        engine,
        "process",
        "id, name, state, custom_id, idempotency_key, attributes, arguments, registered_at, begun_at, ended_at",
        (
            (
                *(i, "fulfil", state, f"order-{i}", f"key-{i}", f'{{"shop": "{i % 50}"}}', CALLED, times[i], times[i]),
                times[i] + timedelta(seconds=20) if state == "FINISHED" else None,
            )
            for i, state in states.items()
        ),
    )
    left = (
        (i, TASKS if i == LARGE_ONE else 2, int(state != "FINISHED"), int(state == "BROKEN"))
        for i, state in states.items()
    )
    copy(engine, "graph", "process_id, tasks, unfinished, broken", left)
    of_task = {"FINISHED": "FINISHED", "ACTIVE": "READY", "BROKEN": "BROKEN"}
    tasks = [(i, n, of_task[state] if n == 2 else "FINISHED") for i, state in states.items() for n in (1, 2)]
    tasks += [(LARGE_ONE, n, "FINISHED") for n in range(3, TASKS + 1)]
    copy(
        engine,
        "task",
        "process_id, number, actor, state, arguments, ready_at",
        ((i, n, "fulfil" if n == 1 else "charge", state, CALLED, times[i]) for i, n, state in tasks),
    )
    copy(
        engine,
        "decision",
        "process_id, number, queue, state",
        ((i, 2, "actor.charge", "QUEUED" if state == "ACTIVE" else "FINISH") for i, state in states.items()),
    )
    copy(
        engine,
        "broken_task",
        "process_id, number, actor, at, type, message",
        (
            (i, 2, "charge", times[i], "ApiError", f"{'503' if i % 7 else 'no such order'} {i}")
            for i, state in states.items()
            if state == "BROKEN"
        ),
    )


def _state(number: int) -> str:
    return "BROKEN" if number % 20 == 0 else "ACTIVE" if number % 7 == 0 else "FINISHED"


def _jobs(engine: Engine, now: datetime) -> int:
    """The first one. Half is for later."""
    copy(
        engine,
        "job",
        "task, queue, args, kwargs, state, error, due_at",
        (
            (
                *(MAIL, f"mail-{i % 3}", "[17]", "{}"),
                *(("parked", f"ConnectionError: no answer to {i}") if i % FEW == 0 else ("waiting", None)),
                now + timedelta(seconds=i - JOBS / 2),
            )
            for i in range(JOBS)
        ),
    )
    copy(
        engine,
        "job_log",
        "job_id, attempt, outcome, queue, task, args, kwargs, rank, max_attempts, enqueued_at, ended_at",
        (
            (
                *(1_000_000 + i, 1, "failed" if i % 100 == 0 else "done", "mail", f"shop.task{i % 50}", "[]", "{}"),
                *(0, 4, now - timedelta(seconds=i + 62), now - timedelta(seconds=i + 60)),
            )
            for i in range(LOG)
        ),
    )
    with engine.connect() as connection:
        return int(connection.execute(sa.select(sa.func.min(JOB.c.id)).where(JOB.c.task == MAIL)).scalar_one())
