"""On what a run was measured, as far as a reader of its figures needs to know."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import psycopg2
import redis

from bench.peers_venv import LOCK
from bench.servers import Servers

PEERS = ("procrastinate", "pgqueuer", "dbos")


def machine(servers: Servers) -> dict[str, object]:
    with closing(psycopg2.connect(servers.plain_database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("select current_setting('server_version'), current_setting('shared_buffers')")
        postgres = cursor.fetchone()
    assert postgres is not None
    with redis.Redis.from_url(servers.broker_url) as broker:
        about_broker = broker.info("server")
    return {
        "commit": _commit(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "postgres": {"version": postgres[0], "shared_buffers": postgres[1]},
        "redis": about_broker.get("valkey_version", about_broker.get("redis_version")),
        "celery": version("celery"),
        "peers": {name: found for name, found in _locked() if name in PEERS},
    }


def _commit() -> str | None:
    """None outside of a checkout."""
    argv = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _processor() -> str:
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _locked() -> list[tuple[str, str]]:
    return re.findall(r"^([\w-]+)(?:\[[\w,-]+\])?==(\S+)", LOCK.read_text(), re.MULTILINE)
