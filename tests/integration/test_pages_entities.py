"""Pages of an entity and of its stage where the model is in the console: its version, and walks that begin here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.audit import Audit
from app.db import transaction
from stages import resweep
from tests.kit import stages_rows
from tests.kit.pages import Person, signed_in
from tests.kit.stages_rows import Stages


@pytest.fixture
def shop(engine: Engine) -> Iterator[Stages]:
    with stages_rows.world() as found:
        found.stage("publish")
        found.sync()
        found.put("o-1", "o-2", price=7)
        yield found


@pytest.fixture
def person(shop: Stages) -> Iterator[Person]:
    with signed_in() as found:
        yield found


def test_the_version_is_that_of_the_table(person: Person) -> None:
    page = person.get("/entity?kind=offer&id=o-1")
    assert "Version 1 According to its table" in page.text
    assert "there is no such row" in person.get("/entity?kind=offer&id=none").text


def test_a_table_that_is_missing_is_told_of(person: Person, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE offer RENAME TO elsewhere")
    page = person.get("/entity?kind=offer&id=o-1")
    assert 'cannot be read in this database: relation "public.offer" does not exist.' in page.text
    assert "Version not known here" in page.text
    assert "system waiting" in page.text


def test_a_walk_begins_and_is_undone(person: Person) -> None:
    question = person.get("/stage/resweep?name=offer.publish")
    assert "offer.publish asked about each" in question.text
    page = question.form("/stage/resweep").send(rate="5/s", reason="should_process is another one")
    assert "has begun" in page.text
    [walk] = resweep.overview()
    assert (walk.kind, walk.stage, walk.rate, walk.state, walk.requested_by) == (
        *("offer", "publish", 5.0, "running", "olga@console"),
    )
    again = person.get("/stage/resweep?name=offer.publish").form("/stage/resweep").send()
    assert again.status == 400
    assert "is under way" in again.text
    page.form("/stage/resweep/cancel").send()
    assert resweep.progress(walk.id).state == "cancelled"
    with transaction() as session:
        reason = session.scalar(sa.select(Audit.reason).where(Audit.action == "resweep.start"))
    assert reason == "should_process is another one"
