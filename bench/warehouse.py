"""Very many reactive tasks for the trigger measures, registered and fed as services do it; run as a process of its own.

Arguments as JSON in, one line of JSON out.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import threading
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
from bench import reactive as tasks_of
from triggers import All, ChunkDelta, Delta, RefDelay, ctl, polling, sync
from triggers.registration import declared
from triggers.service import Service

LOADED = "loaded_to"
AFFECTED = 10


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


def fill(tasks: int, hot: int = 0) -> dict[str, Any]:
    """Registers the tasks, gives each table a value, and lets passes take it for seen. Beside them `hot` tasks, of
    which ten each wait for a day of one table."""
    empty()
    template = replace(declared[f"{tasks_of.__name__}.stamp_run"], first_run="baseline")
    wanted = {f"bench.task_{n}": replace(template, name=f"bench.task_{n}", trigger=_trigger(n)) for n in range(tasks)}
    for number in range(hot):
        trigger = Delta(f"hot.table_{number // AFFECTED}", LOADED, "1d")
        wanted[f"bench.hot_{number}"] = replace(template, name=f"bench.hot_{number}", trigger=trigger)
    begun = time.perf_counter()
    with transaction() as session:
        sync.write(session, wanted)
    registered = time.perf_counter() - begun
    at = datetime.now(UTC) - timedelta(hours=1)
    for start in range(0, tasks, 10_000):
        ctl.advance_many({(f"dds.table_{n}", LOADED): at for n in range(start, min(tasks, start + 10_000))})
    for start in range(0, hot, AFFECTED):
        ctl.advance(f"hot.table_{start // AFFECTED}", loaded_to=at)
    with autocommit() as connection:
        connection.execute(sa.text("vacuum analyze"))
    while polling.run_once().hits:
        pass
    with autocommit() as connection:
        connection.execute(sa.text("vacuum analyze"))
    return {"registered": registered}


def grow(tasks: int, samples: int, warm: int) -> dict[str, Any]:
    """What one change costs the service that starts ten of so many tasks: milliseconds a pass, the index alone, the
    cold start, and the memory of a task. They were filled in by another process, whose garbage would be used here."""
    hot = samples + warm
    rows = _read_rows()
    before, begun = _rss(), time.perf_counter()
    following = Service()
    following.run_once()
    cold = time.perf_counter() - begun
    grown = (_rss() - before) / tasks
    while following.run_once().more:
        pass
    taken, moved = [], []
    for number in range(hot):
        name = f"hot.table_{number}"
        ctl.advance(name, loaded_to=datetime.now(UTC) + timedelta(days=2))
        begun = time.perf_counter()
        report = following.run_once()
        taken.append((time.perf_counter() - begun) * 1000)
        assert report.started == AFFECTED, report
        moved.append(_index_alone(following, name))
    return {
        "pass": statistics.median(taken[warm:]),
        "index": statistics.median(moved[warm:]),
        "cold": cold,
        "rows": rows,
        "bytes": grown,
    }


def _index_alone(following: Service, entity: str) -> float:
    """Microseconds for the move that flips ten tasks, there and back."""
    assert following.memory is not None
    index, name = following.memory.index, (entity, LOADED)
    now = index.current(name)
    assert now is not None
    begun = time.perf_counter()
    index.set_current(name, now - 86_400_000_000 * 3)
    index.set_current(name, now)
    return (time.perf_counter() - begun) / 2 * 1e6


def _read_rows() -> float:
    """The floor of a cold start: psycopg2 reads tasks, what they have seen and the control table."""
    begun = time.perf_counter()
    with closing(psycopg2.connect(_url())) as connection, connection.cursor() as cursor:
        for query in (
            "select name, trigger, pool, priority, produces, paused from tidemill.reactive_task",
            "select task, entity, parameter, value from tidemill.ctl_seen",
            "select entity, parameter, value from tidemill.ctl",
        ):
            cursor.execute(query)
            cursor.fetchall()
    return time.perf_counter() - begun


def follow(tasks: int, rate: int, seconds: float) -> dict[str, Any]:
    """A stream of changes, twenty a transaction, while the service runs: the part of a core that it takes, and how far
    it is behind at the end."""
    fill(tasks)
    following = Service()
    following.run_once()
    stop = threading.Event()
    arguments = json.dumps({"tasks": tasks, "rate": rate, "seconds": seconds})
    writer = subprocess.Popen([sys.executable, "-m", "bench.warehouse", "write", arguments], stdout=subprocess.PIPE)
    cpu, begun, moved = time.process_time(), time.perf_counter(), 0
    while writer.poll() is None:
        report = following.run_once()
        moved += report.moved
        stop.wait(0.0 if report.more else 0.02)
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    last = time.perf_counter()
    while (report := following.run_once()).moved:
        moved += report.moved
    written = json.loads(writer.communicate()[0])["written"]
    return {"core": cpu / took, "rate": written / took, "behind": time.perf_counter() - last, "moved": moved}


def write(tasks: int, rate: int, seconds: float) -> dict[str, Any]:
    """So many changes a second, each to another table, by a minute."""
    each, step, written = timedelta(0), 20 / rate, 0
    base = datetime.now(UTC) - timedelta(minutes=50)
    begun = time.perf_counter()
    while (at := time.perf_counter() - begun) < seconds:
        each += timedelta(milliseconds=1)
        numbers = [(written + n) % tasks for n in range(20)]
        ctl.advance_many({(f"dds.table_{n}", LOADED): base + each for n in numbers})
        written += 20
        time.sleep(max(0.0, written / 20 * step - at))
    return {"written": written}


def empty() -> dict[str, Any]:
    names = ("ctl", "ctl_change", "ctl_seen", "run", "evaluation", "reactive_leaf", "reactive_task")
    with transaction() as session:
        # The control table is not to be emptied.
        session.execute(sa.text("alter table tidemill.ctl disable trigger ctl_truncating"))
        session.execute(sa.text(f"truncate {', '.join(f'tidemill.{name}' for name in names)} restart identity cascade"))
        session.execute(sa.text("alter table tidemill.ctl enable trigger ctl_truncating"))
    return {}


def read_ctl(repeat: int) -> dict[str, Any]:
    """The floor: psycopg2 reads the whole table into a list."""
    taken = []
    with closing(psycopg2.connect(_url())) as connection, connection.cursor() as cursor:
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


def _url() -> str:
    return settings().resolved_database_url().replace("+psycopg2", "")


def _peak() -> int:
    """The most memory that this process ever had, in bytes."""
    return _status("VmHWM")


def _rss() -> int:
    gc.collect()
    return _status("VmRSS")


def _status(word: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(word))


if __name__ == "__main__":
    each = (fill, empty, read_ctl, evaluate, grow, follow, write)
    what = {function.__name__: function for function in each}[sys.argv[1]]
    print(json.dumps(what(**json.loads(sys.argv[2]))))
