"""With very much in the database, no page reads a large table from one end to the other, and none reads much."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app import db
from app.console.web import memory
from tests.browser.conftest import World
from tests.browser.pages import PAGES, Tried
from tests.kit import console
from tests.kit.pages import Person
from tests.kit.pages_crowd import LARGE
from tests.kit.plans import captured, explain

pytestmark = pytest.mark.browser
#: Of 8 kB, by one statement. Counting what waits, up to 100 000 of each queue, takes 6300; all tables have 15 000.
PAGES_MOST = 8_000
#: What is about everything, and remembered for a while; or about what is few: the broken ones of all tasks.
WHOLE = {
    "/map": {"reactive_task", "reactive_leaf"},
    "/map?entity=mart.orders&depth=1": {"reactive_task", "reactive_leaf"},
    "/dataset?entity=dds.orders": {"reactive_task", "reactive_leaf"},
    "/processes/errors": {"broken_task"},
    "/operations/start?kind=restart-task": {"broken_task", "process"},
}
#: They ask the database for nothing.
STILL = {"/none", "/demo"}


@pytest.fixture(scope="session")
def person(world: World) -> Iterator[Person]:
    """At a console of this process, whose statements can be seen."""
    with console.serving() as url:
        found = Person(url)
        found.sign_in(world.tokens["operator"])
        yield found


@pytest.mark.parametrize(
    "tried", [each for each in PAGES if each.role == "operator" and each.path not in STILL], ids=str
)
def test_page_is_answered_by_index(person: Person, world: World, tried: Tried) -> None:
    memory.forget_all()
    engine = db.engine()
    with captured(engine) as statements:
        person.get(tried.path.format(**world.names))
    asked = [each for each in statements if each.text.lstrip().upper().startswith(("SELECT", "WITH"))]
    plans = [explain(engine, each, analyze=True) for each in asked]
    assert plans
    assert {table for plan in plans for table in plan.read_whole()} & LARGE <= WHOLE.get(tried.path, set())
    assert max(plan.pages for plan in plans) < PAGES_MOST
