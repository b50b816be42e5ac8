"""The program that makes the work; run as a process of its own, as a user's is. Arguments as JSON in.

`prepare`: the tables. `burst`: so many of one path at once. `drive`: so many a second of each, until SIGTERM.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from bench import tasks, things
from bench.soak import work
from tidemill import Base, ctl, enqueue, stages, start, transaction

THINGS = 2_000
TICK_SECONDS = 0.1
_FILL = "insert into bench_thing select to_char(n, 'FM0000'), 0, 0, 'thing ' || n from generate_series(0, :most) n"
_WRITE = sa.text("update bench_thing set writes = writes + 1 where id = any(:ids)")


def prepare() -> None:
    with transaction() as session:
        Base.metadata.create_all(session.connection(), [Base.metadata.tables[things.Thing.__tablename__]])
        session.execute(sa.text(_FILL), {"most": THINGS - 1})
        stages.install(session, things.Thing)
    changes(1)


def jobs(count: int) -> None:
    for _ in range(count):
        with transaction() as session:
            enqueue(tasks.noop.s(), session=session)


def visits(count: int) -> None:
    """By plain SQL: the system stage is asked, and then the stage visits. The same entity seldom twice."""
    ids = [f"{number:04}" for number in random.sample(range(THINGS), min(count, THINGS))]
    with transaction() as session:
        session.execute(_WRITE, {"ids": ids})


def processes(count: int) -> None:
    for number in range(count):
        with transaction() as session:
            start(work.walk, number, session=session)


def changes(count: int) -> None:
    for _ in range(count):
        table = random.randrange(work.TABLES)
        before = ctl.get(f"soak.table_{table}", "loaded_to") or datetime(2000, 1, 1, tzinfo=UTC)
        ctl.advance(f"soak.table_{table}", loaded_to=before + timedelta(seconds=2))


PATHS: dict[str, Callable[[int], None]] = {each.__name__: each for each in (jobs, visits, processes, changes)}


def burst(path: str, count: int) -> None:
    """Says when it began, on this machine's clock: its own start is none of it."""
    print(time.time())
    PATHS[path](count)
    time.sleep(0.2)


def drive(rates: Mapping[str, float]) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    begun, made = time.monotonic(), dict.fromkeys(rates, 0)
    while not over.wait(TICK_SECONDS):
        for path, rate in rates.items():
            # What this program was late with is not made up for: it would be more than half.
            due = min(int(rate * (time.monotonic() - begun)) - made[path], int(rate) + 1)
            if due > 0:
                PATHS[path](due)
                made[path] = int(rate * (time.monotonic() - begun))
    time.sleep(1)  # the doorbell rings from a thread of this process


if __name__ == "__main__":
    found = {each.__name__: each for each in (prepare, burst, drive)}[sys.argv[1]]
    found(**json.loads(sys.argv[2]))
