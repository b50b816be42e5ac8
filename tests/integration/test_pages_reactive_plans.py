"""With ten thousand tasks, the board and the page of a task are read by index."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from urllib.parse import urlencode

import pytest
from sqlalchemy.engine import Engine

from app import db
from app.console.pages import dataset, maps, reactive, reactive_task
from app.console.web.fields import Fields
from app.console.web.page import Visit
from app.tokens import Holder
from tests.kit.plans import captured, explain
from triggers import Delta
from triggers.shape import shape

TASKS, RUNS, STEPS = 10_000, 10, 5
BIG = {"run", "evaluation", "ctl_change", "ctl_seen", "ctl", "reactive_leaf", "missed_window"}


def copy(engine: Engine, table: str, columns: str, rows: Sequence[tuple[object, ...]]) -> None:
    text = io.StringIO("".join("\t".join("\\N" if each is None else str(each) for each in row) + "\n" for row in rows))
    connection = engine.raw_connection()
    try:
        connection.cursor().copy_expert(f"COPY tidemill.{table} ({columns}) FROM STDIN", text)
        connection.commit()
    finally:
        connection.close()


@pytest.fixture
def big(database_url: str) -> Engine:
    engine, numbers = db.engine(), range(TASKS)
    words = [json.dumps(Delta(f"e{n}", "p", "1d").to_json()) for n in numbers]
    form = shape(Delta("e", "p", "1d"))
    produces = [json.dumps([[f"e{(n + 1) % TASKS}", "p"]]) for n in numbers]
    columns = "name, module, pool, priority, trigger, shape, produces, first_run, on_lapse, max_failures, backoff, code"
    tail = ("fire", "drop", 5, "5s", "c")
    copy(engine, "reactive_pool", "name", [(f"p{n}",) for n in range(10)])
    rows = [(f"m.t{n:05}", "m", f"p{n % 10}", 0, words[n], form, produces[n], *tail) for n in numbers]
    copy(engine, "reactive_task", columns, rows)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tidemill.reactive_leaf (task_id, position, entity, parameter, latched) "
            "SELECT id, 0, trigger->>'entity', 'p', true FROM tidemill.reactive_task"
        )
    moment = "2026-01-01T00:00:00Z"
    copy(engine, "ctl", "entity, parameter, value", [(f"e{n}", "p", moment) for n in numbers])
    copy(engine, "ctl_seen", "task, entity, parameter, value", [(f"m.t{n:05}", f"e{n}", "p", moment) for n in numbers])
    steps = [(f"e{n}", "p", moment) for _ in range(STEPS) for n in numbers]
    copy(engine, "ctl_change", "entity, parameter, value", steps)
    runs = [(f"m.t{n:05}", f"reactive.p{n % 10}", 0, 0, "done", moment) for _ in range(RUNS) for n in numbers]
    copy(engine, "run", "task, queue, priority, generation, state, ended_at", runs)
    kept = [(f"m.t{n:05}", moment, "t", "polling", words[n], "[]") for _ in range(STEPS) for n in numbers]
    copy(engine, "evaluation", "task, at, fired, cause, trigger, values", kept)
    missed = [(f"m.t{n:05}", moment, moment, "r") for n in numbers]
    copy(engine, "missed_window", "task, opened_at, closed_at, reason", missed)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    return engine


def visit(**words: str) -> Visit:
    return Visit(Holder("olga", "viewer", None), "/", query=Fields.read(urlencode(words).encode(), 1000))


PAGES: dict[str, Callable[[], object]] = {
    "the board": lambda: reactive._read(visit()),
    "further on": lambda: reactive._read(visit(after="m.t05000")),
    "of a pool": lambda: reactive._read(visit(pool="p3")),
    "what runs": lambda: reactive._read(visit(state="running")),
    "what was missed": lambda: reactive._read(visit(state="missed")),
    "a task": lambda: reactive_task._read(visit(task="m.t05000")),
    "a task in the past": lambda: reactive_task._read(visit(task="m.t05000", at="2026-02-01T00:00:00Z")),
    "a data set": lambda: dataset._read(visit(entity="e5000")),
    "around a task": lambda: maps._read(visit(task="m.t05000", depth="3")),
}


def test_pages_are_read_by_index(big: Engine, subtests: pytest.Subtests) -> None:
    maps.ATLAS.forget()
    maps.ATLAS.get()
    for what, read in PAGES.items():
        with subtests.test(what):
            with captured(big) as asked:
                read()
            plans = [explain(big, each, analyze=True) for each in asked if each.text.startswith("SELECT")]
            assert len(plans) < 30
            for plan in plans:
                assert plan.read_whole().isdisjoint(BIG | {"reactive_task"}), plan.root
            assert sum(plan.pages for plan in plans) < 3000, [plan.pages for plan in plans]
    maps.ATLAS.forget()
