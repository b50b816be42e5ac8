"""Floors: what the same Postgres does when nothing but the statement is in the way.

Raw psycopg2, one connection per process, a table with the columns and the index that any durable queue needs.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context

import psycopg2

from bench import processor
from bench.context import PEERS
from bench.processor import Worked

_TABLE = """
drop table if exists bench_floor;
create table bench_floor (
    id bigint generated always as identity primary key,
    key text not null unique,
    queue text not null,
    task text not null,
    arguments jsonb not null,
    rank integer not null default 0,
    due_at timestamptz not null default now()
) with (fillfactor = 70);
create index on bench_floor (queue, due_at);
"""
_INSERT = "insert into bench_floor (key, queue, task, arguments) values (%s, 'jobs', 'bench.tasks.noop', '[]')"
_UPSERT = """
insert into bench_floor (key, queue, task, arguments)
select key, 'jobs', 'bench.tasks.noop', '[]' from unnest(%s) as given (key)
on conflict (key) do update set due_at = least(bench_floor.due_at, excluded.due_at)
"""
_FILL = """
insert into bench_floor (key, queue, task, arguments)
select n, 'jobs', 'bench.tasks.noop', '[]' from generate_series(1, %s) as given (n)
"""
# LIMIT is a literal: as a parameter of a generic plan it turns into a sequential scan.
_TAKE = {
    size: f"""
with taken as materialized (
    select id from bench_floor where queue = 'jobs' order by due_at limit {size} for update skip locked
)
delete from bench_floor using taken where bench_floor.id = taken.id
"""  # noqa: S608 - a number of this file
    for size in (1, 100)
}


def _fresh(database_url: str) -> psycopg2.extensions.connection:
    connection = psycopg2.connect(database_url)
    with connection, connection.cursor() as cursor:
        cursor.execute(_TABLE)
    return connection


def insert_singly(database_url: str, count: int) -> float:
    """Rows a second, one row a commit."""
    with closing(_fresh(database_url)) as connection, connection.cursor() as cursor:
        begun = time.perf_counter()
        for number in range(count):
            cursor.execute(_INSERT, (str(number),))
            connection.commit()
        return count / (time.perf_counter() - begun)


def upsert_batches(database_url: str, batches: int, size: int) -> float:
    """Rows a second, `size` of them by one statement and one commit."""
    with closing(_fresh(database_url)) as connection, connection.cursor() as cursor:
        begun = time.perf_counter()
        for batch in range(batches):
            cursor.execute(_UPSERT, ([f"{batch}-{number}" for number in range(size)],))
            connection.commit()
        return batches * size / (time.perf_counter() - begun)


def _work_off(database_url: str, size: int, begin_at: float) -> tuple[int, float]:
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        time.sleep(max(0.0, begin_at - time.time()))
        taken = 0
        while True:
            cursor.execute(_TAKE[size])
            connection.commit()
            if cursor.rowcount == 0:
                return taken, time.time()
            taken += cursor.rowcount


def take_and_delete(database_url: str, count: int, size: int, processes: int = 2) -> float:
    """Rows a second taken and deleted, `size` of them by one statement and one commit, by processes side by side."""
    with closing(_fresh(database_url)) as connection:
        with connection.cursor() as cursor:
            cursor.execute(_FILL, (count,))
            connection.commit()
            connection.autocommit = True
            cursor.execute("vacuum analyze bench_floor")
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            begin_at = time.time() + 1.0  # by then both have started and connected
            futures = [pool.submit(_work_off, database_url, size, begin_at) for _ in range(processes)]
            done = [future.result() for future in futures]
            assert sum(taken for taken, _ in done) == count
            return count / (max(end for _, end in done) - begin_at)


def _visit(database_url: str, begin_at: float) -> tuple[int, float, float | None]:
    """How many were visited, when that ended, and what it took of the processor, here and in the backend."""
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        backend = connection.get_backend_pid()
        time.sleep(max(0.0, begin_at - time.time()))
        used, made = time.process_time() + processor.of_processes([backend]), 0
        while True:
            cursor.execute("select bench_visits.work_off()")
            connection.commit()
            row = cursor.fetchone()
            assert row is not None
            if row[0] == 0:
                break
            made += row[0]
        ended = time.time()
        used = time.process_time() + processor.of_processes([backend]) - used
        return made, ended, used if processor.is_postgres(backend) else None


def visits(database_url: str, count: int, processes: int = 2) -> Worked:
    """Visits a second, a hundred by one call of a function in the server and one commit, by processes side by side;
    and microseconds of processor time each."""
    with closing(psycopg2.connect(database_url)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        cursor.execute((PEERS / "visits.sql").read_text())
        cursor.execute("call fill(%s)", (count,))
        cursor.execute("call offer()")
        cursor.execute("vacuum analyze")
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            begin_at = time.time() + 1.0  # by then both have started and connected
            futures = [pool.submit(_visit, database_url, begin_at) for _ in range(processes)]
            done = [future.result() for future in futures]
        cursor.execute("select count(*) from entity where visits <> 1")
        assert cursor.fetchone() == (0,)
        cursor.execute("drop schema bench_visits cascade")
    assert sum(made for made, _, _ in done) == count
    costs = [used for _, _, used in done if used is not None]
    rate = count / (max(end for _, end, _ in done) - begin_at)
    return Worked(rate, sum(costs) / count * 1e6 if len(costs) == processes else None)
