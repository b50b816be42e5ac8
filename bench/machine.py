"""On what a run was measured, as far as a reader of its figures needs to know."""

from __future__ import annotations

import os
import platform
from contextlib import closing
from importlib.metadata import version

import psycopg2
import redis

from bench.servers import Servers


def machine(servers: Servers) -> dict[str, object]:
    with closing(psycopg2.connect(servers.plain_database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("select current_setting('server_version'), current_setting('shared_buffers')")
        postgres = cursor.fetchone()
    assert postgres is not None
    with redis.Redis.from_url(servers.broker_url) as broker:
        about_broker = broker.info("server")
    return {
        "processors": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "postgres": {"version": postgres[0], "shared_buffers": postgres[1]},
        "redis": about_broker.get("valkey_version", about_broker.get("redis_version")),
        "celery": version("celery"),
    }
