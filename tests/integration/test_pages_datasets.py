"""The map of data sets and tasks, and the page of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.console.pages import maps
from app.db import transaction
from tests.kit import reactive as kit
from tests.kit.pages import Person, Seen, signed_in
from tests.kit.reactive import MODULE, ORDERS, World, day
from triggers import Delta, RefDelay

MART, OUT = ("mart.orders", "built_to"), ("out.export", "sent_to")


@pytest.fixture
def person(engine: Engine, broker_url: str) -> Iterator[Person]:
    with signed_in("viewer") as found:
        yield found


@pytest.fixture
def world(person: Person) -> Iterator[World]:
    with kit.world() as found:
        found.declare("build", Delta(*ORDERS, "1d"), produces=[MART])
        found.declare("export", RefDelay(*MART, *ORDERS, "1d"), min_interval="1h", produces=[OUT])
        found.sync()
        yield found


def nodes(seen: Seen) -> set[str]:
    return {part.partition('"')[0] for part in seen.html.split('aria-label="Data set ')[1:]} | {
        part.partition('"')[0].rpartition(".")[2] for part in seen.html.split('aria-label="Task ')[1:]
    }


def test_a_small_map_is_drawn_whole(person: Person, world: World) -> None:
    kit.advance(day(1))
    seen = person.get("/map")
    assert nodes(seen) == {"dds.orders", "mart.orders", "out.export", "build", "export"}
    assert seen.html.count('<path class="arrow"') == 5
    assert "2026-01-02 00:00" in seen.text
    assert "no value yet" in seen.text
    assert "The same as a table" in seen.text


def test_a_neighbourhood(person: Person, world: World) -> None:
    one = person.get("/map?" + urlencode({"entity": "mart.orders", "depth": 1}))
    assert nodes(one) == {"mart.orders", "build", "export"}
    two = person.get("/map?" + urlencode({"task": f"{MODULE}.build", "depth": 2}))
    assert nodes(two) == {"build", "dds.orders", "mart.orders", "export"}
    assert person.get("/map?entity=none").status == 404
    assert person.get("/map?entity=mart.orders&depth=9").status == 400


def test_a_large_map_is_searched(person: Person, world: World) -> None:
    for number in range(80):
        world.declare(f"many{number:02}", Delta(*ORDERS, "1d"), produces=[(f"many.d{number:02}", "p")])
    world.sync()
    maps.ATLAS.forget()
    seen = person.get("/map")
    assert "165 data sets and tasks are too many for one map" in seen.text
    assert "<svg viewBox" not in seen.html.partition('id="live"')[2]
    found = person.get("/map?text=MANY.D07")
    assert "many.d07" in found.text
    assert "many.d08" not in found.text
    around = person.get("/map?entity=dds.orders&depth=3")
    assert len(nodes(around)) == maps.BOXES_MOST
    assert "Only the nearest 80 are drawn" in around.text


def test_a_data_set(person: Person, world: World) -> None:
    for number in range(1, 6):
        kit.advance(day(number))
    seen = person.get("/dataset?entity=dds.orders")
    for words in ("loaded_to", "2026-01-06 00:00:00", "Needed by", "build", "export", "somebody outside advances it"):
        assert words in seen.text, words
    assert seen.html.count('<tr id="change-') == 5
    assert seen.html.count('<g class="lane">') == 1
    made = person.get("/dataset?entity=mart.orders")
    assert "It has no value yet" in made.text
    assert "Produced by" in made.text
    assert person.get("/dataset?entity=none").status == 404
    assert person.get("/dataset").status == 400
    assert person.get("/dataset?entity=dds.orders&before=x").status == 400


def test_changes_and_readers_are_paged(person: Person, world: World) -> None:
    for number in range(40):
        world.declare(f"reader{number:02}", Delta(*ORDERS, "1d"))
    world.sync()
    for number in range(1, 36):
        kit.advance(day(number))
    seen = person.get("/dataset?entity=dds.orders")
    assert seen.html.count('<tr id="change-') == 30
    assert seen.html.count('<tr id="task-') == 30
    further = next(link for link in seen.links if "after=" in link)
    older = next(link for link in seen.links if "before=" in link)
    assert person.get(f"/dataset{further}").html.count('<tr id="task-') == 12
    assert person.get(f"/dataset{older}").html.count('<tr id="change-') == 5


def changed(hours: int) -> None:
    """For so long ago, which the trigger of the table would not let stand."""
    with transaction() as session:
        session.execute(sa.text("ALTER TABLE tidemill.ctl DISABLE TRIGGER USER"))
        ago = sa.text("UPDATE tidemill.ctl SET changed_at = now() - :hours * interval '1 hour'")
        session.execute(ago, {"hours": hours})
        session.execute(sa.text("ALTER TABLE tidemill.ctl ENABLE TRIGGER USER"))


def test_what_does_not_move_as_it_uses_to_is_silent(person: Person, world: World) -> None:
    for number in range(1, 6):
        kit.advance(day(number))
    ago = sa.text("UPDATE tidemill.ctl_change SET changed_at = now() - (10 - id) * interval '1 hour'")
    kit.execute(ago)
    changed(2)
    assert "every 1h" in person.get("/dataset?entity=dds.orders").text
    changed(5)
    seen = person.get("/dataset?entity=dds.orders")
    assert "silent" in seen.text
    assert "usually every 1h" in seen.text
    assert ", silent" in person.get("/map").text
