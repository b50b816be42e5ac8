"""`python -m bench.sizing [--quick]`: what each kind of work costs Postgres, in bytes. docs/scale.md reckons with it.

Unlike rates, bytes do not depend on the machine: write-ahead log (WAL) for each unit of work, and what stays on disk of
it, in tables and their indexes, until its retention is over. One round, on the servers that the benchmark uses.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg2.extensions import cursor as Cursor  # noqa: N812 - a class with the name of a function

from bench import product, visits
from bench.children import Children
from bench.context import Context
from bench.flows import STEPS
from bench.measures import b08_steps as steps
from bench.servers import servers

WAL = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
SIZE = "select coalesce(sum(pg_total_relation_size(('tidemill.' || name)::regclass)), 0) from unnest(%s) name"
PROCESS = ("process", "graph", "task", "edge", "decision")


@dataclass(frozen=True)
class Cost:
    unit: str
    count: int
    #: In bytes a unit; None: it was not looked at.
    wal: float | None
    kept: float
    where: str


class Meter:
    def __init__(self, cursor: Cursor, *tables: str) -> None:
        self._cursor, self._tables = cursor, tables
        self._size, self._wal = self._sizes(), product.number(cursor, WAL)

    def _sizes(self) -> int:
        self._cursor.execute(SIZE, (list(self._tables),))
        row = self._cursor.fetchone()
        assert row is not None
        return int(row[0])

    def read(self, unit: str, count: int, *, kept: int | None = None) -> Cost:
        """`kept`: how many rows share what stays, where that is not a row for each unit."""
        wal = (product.number(self._cursor, WAL) - self._wal) / count
        return Cost(unit, count, wal, (self._sizes() - self._size) / (kept or count), ", ".join(self._tables))


@contextmanager
def metered(context: Context, *tables: str) -> Iterator[Meter]:
    with product.cursor_of(context) as cursor:
        yield Meter(cursor, *tables)


def jobs(context: Context) -> Iterator[Cost]:
    count = context.size(20_000, 2_000)
    with product.worker(context) as service, metered(context, "job_log") as meter:
        product.work_off(context, service, "noop", count)
        yield meter.read("job, with its enqueue and its log", count)
    with product.worker(context, "track") as service, metered(context, "job_log") as meter:
        product.work_off(context, service, "track", count)
        yield meter.read("job of a batched task", count)
    with metered(context, "job") as meter:
        product.produce(context, "backlog", task="noop", count=count)
        yield meter.read("job that waits", count)
    product.empty_the_queue(context)


def entities(context: Context) -> Iterator[Cost]:
    count = context.size(20_000, 2_000)
    with visits.running(context, count) as services:
        for what, unit in (
            ("offer", "visit that saves the entity and its state"),
            ("write", "the same, after a write by SQL"),
        ):
            with metered(context, "event") as meter:
                visits.work_off(context, services, what, count)
                yield meter.read(unit, count)
    with metered(context, "stage_visit") as meter:
        visits.program(context, "make_waiting", count=count)
        yield meter.read("visit that waits", count)
    visits.program(context, "drop")


def processes(context: Context) -> Iterator[Cost]:
    count = context.size(1_000, 100)
    with steps._running(context) as services, metered(context, *PROCESS) as meter:
        stepped = steps._work_off(context, services, count)
        # The tables were emptied first: all that is there is of these.
        measured = meter.read("step of a process", count * (STEPS + 1))
        with metered(context, *PROCESS) as now:
            yield Cost(measured.unit, measured.count, stepped.wal, now._size / measured.count, measured.where)


MEASURES: tuple[Callable[[Context], Iterator[Cost]], ...] = (jobs, entities, processes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sizing", description="Bytes for each unit of work.")
    parser.add_argument("--quick", action="store_true", help="smaller: does it run? Not a result.")
    chosen = parser.parse_args()
    print("| unit | WAL, bytes | on disk, bytes | where |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, servers() as running:
        context = Context(running, Children(Path(scratch)), chosen.quick)
        for measure in MEASURES:
            for each in measure(context):
                wal = "-" if each.wal is None else f"{each.wal:,.0f}"
                print(f"| {each.unit} | {wal} | {each.kept:,.0f} | {each.where} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
