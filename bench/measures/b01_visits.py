"""B1: stage visits through the whole product, against messages, a job for each entity, the same batches written by
hand, and what the server does alone. Events are not part of it yet, on any side."""

from __future__ import annotations

from functools import partial

from bench import celery_bare, floors, prototype, visits
from bench.context import Context, median
from bench.processor import Worked
from bench.rows import AtLeast, AtMost, Goal, Row, Side


def _ours(context: Context, what: str, count: int) -> Worked:
    with visits.worker(context, count) as service:
        return visits.work_off(context, service, what, count)


def _celery(context: Context, count: int) -> Worked:
    with celery_bare.worker(context) as service:
        return Worked(celery_bare.work_off(context, service, count))


def _pgqueuer(context: Context, count: int) -> Worked:
    return Worked(context.peer("pgqueuer_visit", count=count, batch=100, connections=10)["rate"])


def _costs(sides: list[Worked]) -> tuple[float, ...]:
    return tuple(each.cost for each in sides if each.cost is not None)


def measure(context: Context) -> list[Row]:
    count, messages = context.size(60_000, 20_000), context.size(20_000, 3_000)
    jobs, batched = context.size(10_000, 1_000), context.size(100_000, 20_000)
    taken = context.rounds(
        {
            "celery": partial(_celery, context, messages),
            "offered": partial(_ours, context, "offer", count),
            "written": partial(_ours, context, "write", count),
            "pgqueuer": partial(_pgqueuer, context, jobs),
            "prototype": lambda: Worked(prototype.work_off(context, batched)),
            "floor": partial(floors.visits, context.servers.plain_database_url, batched),
        }
    )
    rates = {side: tuple(each.rate for each in rounds) for side, rounds in taken.items()}

    def row(side: str, kind: Side, what: str, base: str = "", against: str = "", goal: Goal | None = None) -> Row:
        divisor = median(rates[base]) if base else None
        return Row("B1", kind, what, median(rates[side]), "/s", divisor, against, goal, rates[side])

    what = f"{count:,} stage visits, batch 100, -c 2, with their events"
    rows = [
        row("offered", "us", what, "celery", "bare Celery", AtLeast(14)),
        row("offered", "us", what, "pgqueuer", "pgqueuer", AtLeast(6)),
        row("offered", "us", what, "prototype", "the prototype", AtLeast(0.8)),
        row("offered", "us", what, "floor", "the floor", AtLeast(0.25)),
        row("written", "us", f"{count:,} entities written by SQL: system stage, then the visit", "offered", "offered"),
    ]
    floor, ours = _costs(taken["floor"]), _costs(taken["offered"])
    if floor and ours:
        rows.append(Row("B1", "us", "processor time of a visit, worker and backends", median(ours), "µs",
                        median(floor), "the floor", AtMost(3), ours))  # fmt: skip
        rows.append(Row("B1", "floor", "floor: processor time of a visit", median(floor), "µs", samples=floor))
    return [
        *rows,
        row("celery", "peer", f"bare Celery, {messages:,} no-op messages, -c 2, not durable"),
        row("pgqueuer", "peer", f"pgqueuer, {jobs:,} visits, a job each, 10 connections"),
        row("prototype", "peer", f"hand-written prototype, {batched:,} visits, a message for 100, -c 2"),
        row("floor", "floor", f"floor: {batched:,} visits in the server, 100 a call, 2 connections"),
    ]
