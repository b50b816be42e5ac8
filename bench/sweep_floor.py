"""The floor of the sweep: one statement puts back what is overdue, and nothing looks after the rest.

Raw psycopg2, one connection, a table with the columns and the indexes of the product's own, filled with its rows.
"""

from __future__ import annotations

import statistics
import time
from contextlib import closing

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812 - a class with the name of a function

BATCH = 1000
EMPTY_SWEEPS = 50

_FILL = """
drop table if exists bench_sweep;
create table bench_sweep (like tidemill.decision including all) with (fillfactor = 70);
insert into bench_sweep select * from tidemill.decision;
"""
#: So many, `step` apart, and in each turn others: claimed by tens, and never answered.
LAPSE = """
update {}
set state = 'WORK', pass_key = md5(%(turn)s || '/' || n / 10)::uuid, claimed_at = now() - interval '2 min',
    recovery_time = now() - interval '1 min' + n / 10 * interval '1 us', claimed_by = 'gone@w/1', attempts = 1,
    restarts = 0, not_before = null, alone = false
from generate_series(1, %(rows)s) n
where process_id = %(first)s + (n - 1) * %(step)s and number = 1
"""
# LIMIT is a literal: as a parameter of a generic plan it turns into a sequential scan.
_SWEEP = f"""
update bench_sweep
set state = 'QUEUED', pass_key = null, recovery_time = null, restarts = restarts + 1,
    not_before = now() + interval '1 s', queued_at = now(), error = 'WorkTimeout: ' || claimed_by || ' died'
from (
    select process_id, number from bench_sweep
    where queue = 'actor.chain' and state = 'WORK' and recovery_time < now()
    order by recovery_time limit {BATCH} for update skip locked
) late
where bench_sweep.process_id = late.process_id and bench_sweep.number = late.number
returning bench_sweep.process_id, bench_sweep.number
"""  # noqa: S608 - a number of this file


def places(count: int, rows: int, turn: int, *, spread: bool = False) -> dict[str, int]:
    """Of so many out of `count`: next to each other, as they are claimed from their queue, or spread over all."""
    turns = count // rows
    turn %= turns
    first, step = (1 + turn, turns) if spread else (1 + turn * rows, 1)
    return {"rows": rows, "turn": turn, "first": first, "step": step}


def fill(database_url: str) -> None:
    """After the product's own tables."""
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(_FILL)
        connection.commit()
        _vacuum(connection)


def sweep(database_url: str, count: int, turns: list[int], *, spread: bool = False) -> dict[str, float]:
    """Milliseconds of a sweep that finds a batch, and of one that finds nothing: the medians. The first of each is not
    counted."""
    full, empty = [], []
    with closing(psycopg2.connect(database_url)) as connection:
        for turn in (turns[-1], *turns):
            _lapse(connection, count, BATCH, turn, spread=spread)
            begun = time.perf_counter()
            found = _once(connection)
            full.append((time.perf_counter() - begun) * 1000)
            assert found == BATCH, found
        for _ in range(1 + EMPTY_SWEEPS):
            begun = time.perf_counter()
            assert _once(connection) == 0
            empty.append((time.perf_counter() - begun) * 1000)
    return {"full": statistics.median(full[1:]), "empty": statistics.median(empty[1:])}


def sweep_all(database_url: str, count: int, rows: int, turn: int) -> float:
    """How many a second are put back until nothing is left."""
    with closing(psycopg2.connect(database_url)) as connection:
        _lapse(connection, count, BATCH, turn)
        _once(connection)
        _lapse(connection, count, rows, turn)
        _vacuum(connection)
        begun, done = time.perf_counter(), 0
        while found := _once(connection):
            done += found
        took = time.perf_counter() - begun
    assert done == rows, done
    return rows / took


def drop(database_url: str) -> None:
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("drop table if exists bench_sweep")
        connection.commit()


def _once(connection: Connection) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_SWEEP)
        found = len(cursor.fetchall())
    connection.commit()
    return found


def _lapse(connection: Connection, count: int, rows: int, turn: int, *, spread: bool = False) -> None:
    with connection.cursor() as cursor:
        cursor.execute(LAPSE.format("bench_sweep"), places(count, rows, turn, spread=spread))
    connection.commit()


def _vacuum(connection: Connection) -> None:
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("vacuum analyze bench_sweep")
    connection.autocommit = False
