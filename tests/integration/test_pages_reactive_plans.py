"""With ten thousand tasks, the board and the page of a task are read by index."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from sqlalchemy.engine import Engine

from app import db
from app.console.pages import dataset, maps, reactive, reactive_task
from app.console.web.fields import Fields
from app.console.web.page import Visit
from app.tokens import Holder
from tests.kit import reactive_crowd
from tests.kit.copying import analyzed
from tests.kit.plans import captured, explain
from tests.kit.reactive_crowd import BIG


@pytest.fixture
def big(database_url: str) -> Engine:
    reactive_crowd.fill(db.engine())
    analyzed(db.engine())
    return db.engine()


def visit(**words: str) -> Visit:
    return Visit(Holder("olga", "viewer", None), "/", query=Fields.read(urlencode(words).encode(), 1000))


PAGES: dict[str, Callable[[], object]] = {
    "the board": lambda: reactive._read(visit()),
    "further on": lambda: reactive._read(visit(after="warehouse.t05000")),
    "of a pool": lambda: reactive._read(visit(pool="p3")),
    "what runs": lambda: reactive._read(visit(state="running")),
    "what was missed": lambda: reactive._read(visit(state="missed")),
    "a task": lambda: reactive_task._read(visit(task="warehouse.t05000")),
    "a task in the past": lambda: reactive_task._read(visit(task="warehouse.t05000", at="2026-02-01T00:00:00Z")),
    "a data set": lambda: dataset._read(visit(entity="e5000")),
    "around a task": lambda: maps._read(visit(task="warehouse.t05000", depth="3")),
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
                assert plan.read_whole().isdisjoint(BIG), plan.root
            assert sum(plan.pages for plan in plans) < 3000, [plan.pages for plan in plans]
    maps.ATLAS.forget()
