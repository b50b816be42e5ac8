"""What is looked at: memory of each service, connections, the broker, tables and indexes, what waits."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import redis
from psycopg2.extensions import cursor as Cursor  # noqa: N812 - a class with the name of a function

from bench import memory
from bench.children import Service
from bench.context import Context
from bench.errors import BenchError
from bench.soak.judge import MIB

_SIZES = """
select relname, pg_relation_size(oid) from pg_class
where relkind in ('r', 'i') and relnamespace in ('tidemill'::regnamespace, 'public'::regnamespace)
"""
_ROWS = "select relname, n_live_tup, n_dead_tup from pg_stat_user_tables"
_CONNECTIONS = """
select application_name, count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() group by 1
"""
_WAITING = """
select 'jobs', count(*), extract(epoch from now() - min(due_at)) from tidemill.job where due_at <= now()
union all
select 'visits', count(*), extract(epoch from now() - min(due_at)) from tidemill.stage_visit where due_at <= now()
union all
select 'steps', count(*), extract(epoch from now() - min(due_at)) from tidemill.decision where state <> 'FINISH'
union all
select 'runs', count(*), extract(epoch from now() - min(created_at)) from tidemill.run
where state in ('waiting', 'running')
"""


def sample(context: Context, cursor: Cursor, services: Mapping[str, Service]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, service in services.items():
        service.check()
        with suppress(FileNotFoundError, ProcessLookupError):  # a child that has just ended
            first, *children = tree(service.pid)
            found[f"memory {name}"] = memory.of_process(first).fair * MIB
            if children:
                found[f"memory {name} children"] = sum(memory.of_process(pid).fair for pid in children) * MIB
    cursor.execute(_CONNECTIONS)
    connections = {name: float(count) for name, count in cursor.fetchall()}
    found["connections"] = sum(connections.values())
    cursor.execute(_SIZES)
    found |= {f"size {name}": float(size) for name, size in cursor.fetchall()}
    cursor.execute(_ROWS)
    for name, live, dead in cursor.fetchall():
        found |= {f"rows {name}": float(live), f"dead {name}": float(dead)}
    cursor.execute(_WAITING)
    for name, count, oldest in cursor.fetchall():
        found |= {f"waiting {name}": float(count), f"oldest {name}": float(oldest or 0)}
    with redis.Redis.from_url(context.servers.broker_url) as broker:
        found["broker memory"] = float(broker.info("memory")["used_memory"])
        found["keys broker"] = float(broker.dbsize())
    return found


def tree(pid: int) -> list[int]:
    """The process, and all that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in tree(int(child)))]


def scrape(url: str, token: str) -> None:
    """As Prometheus does: the console is looked at, too."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        if answer.read() and answer.status != 200:
            raise BenchError(f"the console answers /metrics with {answer.status}")
    finally:
        connection.close()
