"""B2: A backlog of jobs.

Durable jobs worked off: plain ones against bare Celery's messages, batched ones against procrastinate. The clock
begins when the whole backlog becomes visible (our commit; with Celery, a queue that gets its name) and ends when the
queue is empty. Workers are up and warm. The log must have grown by as many executions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench import celery_bare, floors, product
from bench.context import Context
from bench.rows import AtLeast, Row, Side


def _ours(context: Context, task: str, count: int) -> float:
    with product.worker(context, task) as service:
        return product.work_off(context, service, task, count)


def _celery(context: Context, count: int) -> float:
    with celery_bare.worker(context) as service:
        return celery_bare.work_off(context, service, count)


def measure(context: Context) -> list[Row]:
    count = context.size(20_000, 3_000)
    few = context.size(4_000, 1_000)
    url = context.servers.plain_database_url
    sides: dict[str, Callable[[], float]] = {
        "celery": partial(_celery, context, count),
        "jobs": partial(_ours, context, "noop", count),
        "procrastinate": lambda: context.peer("procrastinate_noop", count=few, concurrency=10)["rate"],
        "batched": partial(_ours, context, "track", count),
        "pgqueuer": lambda: context.peer("pgqueuer_noop", count=count, batch=100)["rate"],
        "floor100": partial(floors.take_and_delete, url, 5 * count, 100),
        "floor1": partial(floors.take_and_delete, url, count // 2, 1),
    }
    rates = {side: tuple(values) for side, values in context.rounds(sides).items()}

    def row(side: str, kind: Side, what: str, against: str = "", goal: AtLeast | None = None, base: str = "") -> Row:
        return Row("B2", kind, what, "/s", rates[side], rates.get(base, ()), against, goal)

    return [
        row("jobs", "us", f"{count:,} durable jobs, -c 2", "bare Celery", AtLeast(1), "celery"),
        row(
            "batched", "us", f"{count:,} durable jobs in batches of 500", "procrastinate", AtLeast(10), "procrastinate"
        ),
        row("celery", "peer", f"bare Celery, {count:,} messages, -c 2, not durable"),
        row("procrastinate", "peer", f"procrastinate, {few:,} jobs, 10 concurrent"),
        row("pgqueuer", "peer", f"pgqueuer, {count:,} jobs, batch 100"),
        row("floor100", "floor", "floor: take and delete in SQL, batch 100, 2 processes"),
        row("floor1", "floor", "floor: take and delete in SQL, singly, 2 processes"),
    ]
