"""Entities that are visited by a service in a process of its own, by two stages: one with batches and one without."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import product
from bench.children import Service
from bench.context import REPO, Context
from bench.waiting import wait_until

MODULES = "bench.tasks,bench.away"
TOGETHER, SINGLY = "together", "singly"
_FILE = "TIDEMILL_REMOTE_STAGES"
_MAKE = """
drop table if exists bench_away;
create table bench_away (id text primary key, visits int, writes int, name text, version bigint not null default 1);
insert into bench_away (id, visits, writes, name)
select to_char(n, 'FM00000000'), 0, 0, 'thing ' || n from generate_series(1, %s) n;
select tidemill.watch('bench_away', 'bench_away');
truncate tidemill.stage_visit, tidemill.stage_state, tidemill.entity_guard
"""
_OFFER = """
insert into tidemill.stage_visit (kind, entity_id, stage, shard, queue, due_at)
select 'bench_away', id, %s, tidemill.shard(id), 'stage.bench_away.' || %s, now() from bench_away order by id limit %s
"""
_ANY = "select count(*) from tidemill.stage_visit where kind = 'bench_away'"
_VISITS = "select coalesce(sum(visits), 0) from bench_away"


@contextmanager
def worker(context: Context, count: int, scratch: Path) -> Iterator[Service]:
    """So many entities, the service, and a worker and a scheduler that know it."""
    product.migrate(context)
    with product.cursor_of(context) as cursor:
        cursor.execute(_MAKE, (count,))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    file = scratch / "remote.toml"
    file.write_text("".join(_entry(name, port, batch) for name, batch in ((TOGETHER, 100), (SINGLY, 1))))
    os.environ[_FILE] = str(file)
    argv = [sys.executable, "-m", "bench.remote_service", str(port)]
    try:
        with (
            context.children.running("remote-service", argv, product.env(context), REPO) as remote,
            product.services(context, MODULES) as (scheduler, service),
        ):
            for stage in (TOGETHER, SINGLY):
                work_off(context, service, stage, min(200, count))
            scheduler.check()
            remote.check()
            yield service
    finally:
        del os.environ[_FILE]
        with product.cursor_of(context) as cursor:
            cursor.execute("truncate tidemill.stage_visit, tidemill.entity_guard; drop table bench_away")


def _entry(name: str, port: int, batch: int) -> str:
    return (
        f'[[stage]]\nkind = "bench_away"\nname = "{name}"\naddresses = ["127.0.0.1:{port}"]\nplaintext = true\n'
        f'asks = false\nwatches = ["writes"]\nbatch = {batch}\n'
    )


def work_off(context: Context, service: Service, stage: str, count: int) -> float:
    """Visits a second, from the commit that offers all of them until the queue is empty."""
    with product.cursor_of(context) as cursor:
        before = product.number(cursor, _VISITS)
        cursor.execute(_OFFER, (stage, stage, count))
        begun = time.time()
        wait_until(lambda: not product.number(cursor, _ANY), service, "an empty queue", timeout=600)
        took = time.time() - begun
        if (done := product.number(cursor, _VISITS) - before) != count:
            raise service.failed(f"has counted {done:,} visits of {count:,} entities")
    return count / took
