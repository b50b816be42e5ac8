"""Our side, as a user runs it: a migrated schema, `celery -A app worker` and `scheduler`, a program that enqueues.

Nothing here reaches into the product but two statements: is the queue empty, and how long is the log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from bench.celery_bare import WORKER
from bench.children import Service
from bench.context import REPO, Context
from bench.servers import HOME
from bench.waiting import wait_until

_CELERY = (sys.executable, "-m", "celery", "--app", "app")

#: The scheduler and the worker.
Services = tuple[Service, Service]


def env(context: Context, modules: str = "bench.tasks") -> dict[str, str]:
    return {
        **os.environ,
        "TIDEMILL_DATABASE_URL": context.servers.database_url,
        "TIDEMILL_BROKER_URL": context.servers.broker_url,
        "TIDEMILL_MODULES": modules,
        "TIDEMILL_HOME": str(HOME),
        "BENCH_STAMPS_URL": context.servers.peers_broker_url,
    }


@contextmanager
def cursor_of(context: Context) -> Iterator[psycopg2.extensions.cursor]:
    with closing(psycopg2.connect(context.servers.plain_database_url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            yield cursor


def number(cursor: psycopg2.extensions.cursor, query: str) -> int:
    cursor.execute(query)
    row = cursor.fetchone()
    assert row is not None
    return int(row[0])


def migrate(context: Context) -> None:
    """Idempotent: every measure may be the first one."""
    tidemill = str(Path(sys.executable).parent / "tidemill")
    context.children.run("migrate", [tidemill, "migrate"], env(context), REPO, timeout=120)


def produce(context: Context, what: str, *, timeout: float = 300, **arguments: object) -> dict[str, Any]:
    return run(context, "producer", what, timeout, arguments)


def warehouse(context: Context, what: str, *, timeout: float = 600, **arguments: object) -> dict[str, Any]:
    return run(context, "warehouse", what, timeout, arguments)


def run(
    context: Context,
    module: str,
    what: str,
    timeout: float,
    arguments: dict[str, object],
    settings: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    argv = [sys.executable, "-m", f"bench.{module}", what, json.dumps(arguments)]
    own = {**env(context), **(settings or {})}
    output = context.children.run(f"{module}-{what}", argv, own, REPO, timeout=timeout)
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


@contextmanager
def worker(context: Context, task: str = "noop", modules: str = "bench.tasks") -> Iterator[Service]:
    """A worker and a scheduler that are up and have done a few jobs of the task."""
    migrate(context)
    with services(context, modules) as (scheduler, service):
        work_off(context, service, task, 200)
        scheduler.check()
        yield service


@contextmanager
def services(context: Context, modules: str) -> Iterator[Services]:
    """A scheduler and a worker that have been started."""
    own = env(context, modules)
    with (
        context.children.running("tidemill-scheduler", [*_CELERY, "scheduler"], own, REPO) as scheduler,
        context.children.running("tidemill-worker", [*_CELERY, *WORKER], own, REPO) as service,
    ):
        yield scheduler, service


def work_off(context: Context, service: Service, task: str, count: int) -> float:
    """Jobs a second, from just before the commit that makes the whole backlog visible until the queue is empty."""
    with cursor_of(context) as cursor:
        logged = number(cursor, "select count(*) from tidemill.job_log")
        committed: float = produce(context, "backlog", task=task, count=count)["committed"]
        wait_until(
            lambda: not number(cursor, "select exists (select from tidemill.job)::int"),
            service, "an empty queue", timeout=300,
        )  # fmt: skip
        took = time.time() - committed
        done = number(cursor, "select count(*) from tidemill.job_log") - logged
        if done != count:
            raise service.failed(f"has {done:,} executions in its log where {count:,} jobs were enqueued")
        return count / took


def lone(context: Context, *, samples: int, warm: int, pause: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Milliseconds to the task's first line: from just before COMMIT, and from its return."""
    with worker(context):
        taken = produce(context, "lone", samples=samples, warm=warm, pause=pause)
        return taken["waited"], taken["after"]


def lone_change(context: Context, *, samples: int, warm: int, pause: tuple[float, float]) -> list[float]:
    """Milliseconds from just before COMMIT of a change to the first line of the task that it starts."""
    with worker(context, modules="bench.tasks,bench.reactive"):
        taken: list[float] = run(context, "changes", "lone", 300, {"samples": samples, "warm": warm, "pause": pause})[
            "waited"
        ]
    warehouse(context, "empty")
    return taken


def empty_the_queue(context: Context) -> None:
    """After a measure that only enqueues; the database is the run's own."""
    with cursor_of(context) as cursor:
        cursor.execute("truncate tidemill.job cascade")
