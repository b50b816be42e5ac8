"""B8: Steps of processes.

A step is a decision accepted, its graph advanced, and the next task handed out; the decider's is one of the eleven of
each process. The clock begins just before the commit that registers all processes and ends when the last one has
finished, each with the right value. DBOS makes workflows of as many steps, four at a time, which was its fastest here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from bench import product, visits
from bench.context import Context
from bench.flows import STEPS
from bench.product import Services
from bench.rows import AtLeast, Row
from bench.waiting import wait_until

_LEFT = "select exists (select from tidemill.process where state <> 'FINISHED')::int"
_RIGHT = "select count(*) from tidemill.process where state = 'FINISHED' and value::text::int = "
_WAL = "select (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint"
_EMPTY = "truncate tidemill.process, tidemill.graph, tidemill.task, tidemill.edge, tidemill.decision"


@dataclass(frozen=True)
class Stepped:
    """`rate` in steps a second; processor time and WAL for each step."""

    rate: float
    cost: float | None = None
    wal: float | None = None

    def __str__(self) -> str:
        cost = "" if self.cost is None else f", {self.cost:.0f} µs of processor time each"
        return f"{self.rate:,.0f}/s{cost}" + ("" if self.wal is None else f", {self.wal:,.0f} bytes of WAL each")


@contextmanager
def _running(context: Context) -> Iterator[Services]:
    product.migrate(context)
    with product.services(context, "bench.tasks,bench.flows") as services:
        _work_off(context, services, 200)
        services[0].check()
        yield services


def _work_off(context: Context, services: Services, count: int) -> Stepped:
    """From just before the commit that registers all processes until the last one has finished."""
    _, service = services
    with product.cursor_of(context) as cursor:
        cursor.execute(_EMPTY)
        used, wal = visits.processor_time(cursor, services), product.number(cursor, _WAL)
        committed = product.run(context, "orders", "backlog", 600, {"count": count})["committed"]
        wait_until(lambda: not product.number(cursor, _LEFT), service, "finished processes", timeout=600, every=0.05)
        took = time.time() - committed
        now, steps = visits.processor_time(cursor, services), count * (STEPS + 1)
        cursor.execute("select min(id) from tidemill.process")
        first = cursor.fetchone()
        assert first is not None
        right = product.number(cursor, f"{_RIGHT} id - {first[0]} + {STEPS}")
        if right != count:
            raise service.failed(f"has finished {right:,} of {count:,} processes with the right value")
        written = product.number(cursor, _WAL) - wal
    cost = None if used is None or now is None else (now - used) / steps * 1e6
    return Stepped(steps / took, cost, written / steps)


def _ours(context: Context, count: int) -> Stepped:
    with _running(context) as services:
        return _work_off(context, services, count)


def measure(context: Context) -> list[Row]:
    count, workflows = context.size(5_000, 500), context.size(400, 100)
    dbos = partial(context.peer, "dbos_steps", threads=4, workflows=workflows)
    sides: dict[str, Callable[[], Stepped]] = {
        "ours": partial(_ours, context, count),
        "dbos": lambda: Stepped(dbos(steps=STEPS)["rate"]),
        "dbos_single": lambda: Stepped(dbos(steps=1)["rate"]),
    }
    taken = context.rounds(sides)
    rates = {side: tuple(each.rate for each in values) for side, values in taken.items()}
    costs = tuple(each.cost for each in taken["ours"] if each.cost is not None)
    wal = tuple(each.wal for each in taken["ours"] if each.wal is not None)
    dbos_of = f"DBOS, {workflows:,} workflows of"
    rows = [
        Row("B8", "us", f"{count:,} processes of {STEPS} steps and a decider, -c 2", "/s", rates["ours"],
            rates["dbos"], "DBOS", AtLeast(10)),
        Row("B8", "us", "bytes of WAL a step", "bytes", wal),
        Row("B8", "peer", f"{dbos_of} {STEPS} steps, 4 at a time", "/s", rates["dbos"]),
        Row("B8", "peer", f"{dbos_of} one step, 4 at a time", "/s", rates["dbos_single"]),
    ]  # fmt: skip
    if costs:
        rows.insert(1, Row("B8", "us", "processor time of a step, scheduler, worker and backends", "µs", costs))
    return rows
