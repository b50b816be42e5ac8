"""Our side of the measures of stages: entities that are visited by a worker, as a user runs it.

Nothing here reaches into the product but a few statements: is anything in the queues, and how many were visited.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg2.extensions import cursor as Cursor  # noqa: N812 - a class with the name of a function

from bench import processor, product
from bench.children import Service
from bench.context import Context
from bench.processor import Worked
from bench.product import Services
from bench.waiting import wait_until

MODULES = "bench.tasks,bench.things"
QUEUE = "stage.bench_thing.count"
WARM = 2_000
# Ids are worked off in their order, so the last one goes last: this finds it by one step in the index.
_ANY = "select (max(entity_id) is not null)::int from tidemill.stage_visit where kind = 'bench_thing'"
_RUNNING = f"select exists (select from tidemill.stage_visit where queue = '{QUEUE}' and state = 'running')::int"  # noqa: S608
_VISITS = "select coalesce(sum(visits), 0) from bench_thing"
_STATES = "select count(*) from tidemill.stage_state"
_PAUSE = """
insert into tidemill.queue (name, paused) values (%s, %s) on conflict (name) do update set paused = excluded.paused
"""
_BACKENDS = """
select pid from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""


def program(context: Context, what: str, **arguments: object) -> dict[str, Any]:
    return product.run(context, "entities", what, 3600, arguments)


@contextmanager
def running(context: Context, count: int) -> Iterator[Services]:
    """So many entities; a scheduler and a worker that are up and have visited some of them."""
    product.migrate(context)
    program(context, "make", count=count)
    with product.services(context, MODULES) as services:
        for what in ("offer", "write"):
            work_off(context, services, what, min(WARM, count))
        services[0].check()
        yield services
    program(context, "drop")


def work_off(context: Context, services: Services, what: str, count: int, **more: object) -> Worked:
    """From just before the commit that makes all of them visible until the queues are empty. `what`: offered to the
    stage, or written by plain SQL, so that the system stage is first."""
    _, service = services
    with product.cursor_of(context) as cursor:
        visited, used = product.number(cursor, _VISITS), processor_time(cursor, services)
        committed = program(context, what, count=count, **more)["committed"]
        wait_until(lambda: not product.number(cursor, _ANY), service, "empty queues", timeout=600)
        took = time.time() - committed
        now = processor_time(cursor, services)
        if (done := product.number(cursor, _VISITS) - visited) != count:
            raise service.failed(f"has counted {done:,} visits of {count:,} entities")
    cost = None if used is None or now is None else (now - used) / count * 1e6
    return Worked(count / took, cost)


def processor_time(cursor: Cursor, services: Services) -> float | None:
    """Of the scheduler and the worker, with all of their processes, and of the backends."""
    cursor.execute(_BACKENDS)
    backends = [row[0] for row in cursor.fetchall()]
    if not all(map(processor.is_postgres, backends)):
        return None
    return sum(processor.of_session(service.pid) for service in services) + processor.of_processes(backends)


@contextmanager
def held_open(context: Context) -> Iterator[None]:
    """A transaction that has read something and does not end: nothing that is deleted meanwhile can be cleaned up."""
    with product.cursor_of(context) as cursor:
        cursor.execute("begin isolation level repeatable read")
        cursor.execute("select count(*) from bench_thing")
        yield
        cursor.execute("rollback")


def pause(context: Context, *, paused: bool) -> None:
    with product.cursor_of(context) as cursor:
        cursor.execute(_PAUSE, (QUEUE, paused))


def slice_of_waiting(context: Context, service: Service, count: int) -> float:
    """Visits a second, of so many that are waiting and have no state yet, while the others wait."""
    with product.cursor_of(context) as cursor:
        at_first = product.number(cursor, _STATES)
        pause(context, paused=False)
        try:
            first = _reached(cursor, service, at_first + min(WARM, count // 5))
            last = _reached(cursor, service, first[0] + count)
        finally:
            pause(context, paused=True)
        wait_until(lambda: not product.number(cursor, _RUNNING), service, "a pause", timeout=60)
    return (last[0] - first[0]) / (last[1] - first[1])


def _reached(cursor: Cursor, service: Service, count: int) -> tuple[int, float]:
    """How many there were, and when: looking costs something, so it is done seldom, and counts exactly."""
    found: list[tuple[int, float]] = []

    def there() -> bool:
        found.append((product.number(cursor, _STATES), time.perf_counter()))
        return found[-1][0] >= count

    wait_until(there, service, f"{count:,} visits", timeout=600, every=0.2)
    return found[-1]


def lone(context: Context, *, samples: int, warm: int, pause: tuple[float, float]) -> list[float]:
    """Milliseconds from just before COMMIT of a new entity to the first line of its visit."""
    with running(context, 1_000):
        taken: list[float] = program(context, "lone", samples=samples, warm=warm, pause=pause)["waited"]
    return taken
