"""Very many reactive tasks for the trigger measures, registered and fed as services do it; run as a process of its own.

Arguments as JSON in, one line of JSON out.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
import sqlalchemy as sa

from app.db import autocommit, engine, transaction
from app.settings import settings
from triggers import All, ChunkDelta, Delta, RefDelay, Run, ctl, polling, reactive, sync
from triggers.registration import declared

LOADED = "loaded_to"


@reactive(Delta("template", LOADED, "1d"), pool="bench", first_run="baseline")
def build(run: Run) -> None:
    """Never called: these measures end before a worker has a run."""


def _trigger(number: int) -> Any:
    """Of ten tasks, six wait for a span, two for a day of a zone, two for a span of data that two tables agree on."""
    table = f"dds.table_{number}"
    match number % 10:
        case 0 | 1:
            return ChunkDelta(table, LOADED, "day", tz="Europe/Berlin")
        case 2 | 3:
            return All(Delta(table, LOADED, "1d"), RefDelay(f"dds.table_{number - 2}", LOADED, table, LOADED, "3h"))
        case _:
            return Delta(table, LOADED, "1d")


def fill(tasks: int) -> dict[str, Any]:
    """Registers the tasks, gives each table a value, and lets passes take it for seen."""
    empty()
    template = next(each for name, each in declared.items() if name.endswith(".build"))
    wanted = {f"bench.task_{n}": replace(template, name=f"bench.task_{n}", trigger=_trigger(n)) for n in range(tasks)}
    begun = time.perf_counter()
    with transaction() as session:
        sync.write(session, wanted)
    registered = time.perf_counter() - begun
    at = datetime.now(UTC) - timedelta(hours=1)
    for start in range(0, tasks, 10_000):
        ctl.advance_many({(f"dds.table_{n}", LOADED): at for n in range(start, min(tasks, start + 10_000))})
    with autocommit() as connection:
        connection.execute(sa.text("vacuum analyze"))
    while polling.run_once().hits:
        pass
    with autocommit() as connection:
        connection.execute(sa.text("vacuum analyze"))
    return {"registered": registered}


def empty() -> dict[str, Any]:
    names = ("ctl", "ctl_change", "ctl_seen", "run", "evaluation", "reactive_leaf", "reactive_task")
    with autocommit() as connection:
        connection.execute(
            sa.text(f"truncate {', '.join(f'tidemill.{name}' for name in names)} restart identity cascade")
        )
    return {}


def read_ctl(repeat: int) -> dict[str, Any]:
    """The floor: psycopg2 reads the whole table into a list."""
    url = settings().resolved_database_url().replace("+psycopg2", "")
    taken = []
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        for _ in range(repeat):
            begun = time.perf_counter()
            cursor.execute("select entity, parameter, value from tidemill.ctl")
            rows = cursor.fetchall()
            taken.append(time.perf_counter() - begun)
            del rows
    return {"seconds": statistics.median(taken)}


def evaluate(repeat: int, tasks: int) -> dict[str, Any]:
    """Whole passes that find nothing to start; and by how much the first one made this process grow."""
    with engine().connect() as connection:
        connection.execute(sa.select(1))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    taken = []
    for _ in range(repeat):
        begun = time.perf_counter()
        report = polling.run_once()
        taken.append(time.perf_counter() - begun)
        assert (report.evaluated, report.hits) == (tasks, 0), report
    return {"seconds": statistics.median(taken), "grown": _peak() - before}


def _peak() -> int:
    """The most memory that this process ever had, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    what = {"fill": fill, "empty": empty, "read_ctl": read_ctl, "evaluate": evaluate}[sys.argv[1]]
    print(json.dumps(what(**json.loads(sys.argv[2]))))
