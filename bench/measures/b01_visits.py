"""B1: Visits by a stage.

Stage visits through the whole product, against messages, a job for each entity, the same batches written by hand, and
what the server does alone. The clock begins just before the commit that makes all visits visible and ends when the
queues are empty, with a worker that has made visits before. Each entity has a state, and both are changed. What is
judged is offered to the stage; further rows, which are not judged, begin with plain SQL that writes the entities, so
that each is visited twice, by the system stage first.

All sides make the same visit: load entity and state, add one to both, save both where the versions are the loaded
ones, finish the entry; pgqueuer as a job for each entity, the prototype and the floor a hundred at once. We, the
prototype and the floor note each save in an outbox, pgqueuer does not. Processor time is that of scheduler and worker
with all of their processes and of the database's backends, on the floor that of its two connections; it is left out
where Postgres runs on another machine.

What remains: of the processor time of a visit that is offered, the worker's child takes one half and its backend the
other; the passes of the scheduler go by time, and since nobody subscribes here, events are written and not published.
The child is busy with no one thing: loading entities and states takes 28 %, calling the stage, with its limits and all
checks of what it returns, 22 %, saving 23 %, claiming 18 %. In the backend it is the number of rows: to save, entity,
entry and state are each found by key, locked if nobody else has them, found again and written, and a guard is made and
taken away; the prototype and the floor have no guard, and write without locking first. Saving and committing in one
round trip gained nothing that could be measured. The claim of the next batch in the transaction that saves would save
a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench import celery_bare, floors, prototype, visits
from bench.context import Context
from bench.processor import Worked
from bench.rows import AtLeast, AtMost, Goal, Row, Side


def _ours(context: Context, what: str, count: int) -> Worked:
    with visits.running(context, count) as services:
        return visits.work_off(context, services, what, count)


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
    sides: dict[str, Callable[[], Worked]] = {
        "celery": partial(_celery, context, messages),
        "offered": partial(_ours, context, "offer", count),
        "written": partial(_ours, context, "write", count),
        "pgqueuer": partial(_pgqueuer, context, jobs),
        "prototype": lambda: Worked(prototype.work_off(context, batched)),
        "floor": partial(floors.visits, context.servers.plain_database_url, batched),
    }
    taken = context.rounds(sides)
    rates = {side: tuple(each.rate for each in rounds) for side, rounds in taken.items()}

    def row(side: str, kind: Side, what: str, base: str = "", against: str = "", goal: Goal | None = None) -> Row:
        return Row("B1", kind, what, "/s", rates[side], rates[base] if base else (), against, goal)

    what = f"{count:,} stage visits, batch 100, -c 2, with their events"
    written = f"{count:,} entities written by SQL: two visits each"
    rows = [
        row("offered", "us", what, "celery", "bare Celery", AtLeast(14)),
        row("offered", "us", what, "pgqueuer", "pgqueuer", AtLeast(6)),
        row("offered", "us", what, "prototype", "the prototype", AtLeast(0.8)),
        row("offered", "us", what, "floor", "the floor", AtLeast(0.25)),
        row("written", "us", written, "offered", "offered"),
        row("written", "us", written, "celery", "bare Celery"),
        row("written", "us", written, "pgqueuer", "pgqueuer"),
        row("written", "us", written, "prototype", "the prototype"),
        row("written", "us", written, "floor", "the floor"),
    ]
    floor, ours = _costs(taken["floor"]), _costs(taken["offered"])
    if floor and ours:
        what = "processor time of a visit, scheduler, worker and backends"
        rows.append(Row("B1", "us", what, "µs", ours, floor, "the floor", AtMost(3)))
        rows.append(Row("B1", "floor", "floor: processor time of a visit", "µs", floor))
    return [
        *rows,
        row("celery", "peer", f"bare Celery, {messages:,} no-op messages, -c 2, not durable"),
        row("pgqueuer", "peer", f"pgqueuer, {jobs:,} visits, a job each, 10 connections"),
        row("prototype", "peer", f"hand-written prototype, {batched:,} visits, a message for 100, -c 2"),
        row("floor", "floor", f"floor: {batched:,} visits in the server, 100 a call, 2 connections"),
    ]
