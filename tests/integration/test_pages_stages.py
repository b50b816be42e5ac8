"""Pages of stages, entities and what is parked: what they say, refuse and escape, and what is done on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import db
from app.audit import Audit
from app.console.web import memory
from app.embedded import OwnServers
from app.limits import Queue
from stages.model import Resweep
from tests.kit import console, pages_stages, standing, visit_rows
from tests.kit.database import Databases
from tests.kit.pages import Person, Seen
from tests.kit.pages_stages import KIND
from tests.kit.pages_world import EVIL


@pytest.fixture(scope="module")
def url(_servers: OwnServers, _databases: Databases) -> Iterator[str]:
    with standing.console_at(_servers, _databases) as found:
        pages_stages.fill(EVIL)
        yield found


@pytest.fixture(scope="module")
def person(url: str) -> Person:
    found = Person(url)
    found.sign_in(console.token("olga", "operator"))
    return found


@pytest.fixture(scope="module")
def viewer(url: str) -> Person:
    found = Person(url)
    found.sign_in(console.token("vera", "viewer"))
    return found


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with Session(db.engine()) as found:
        yield found


def entity(entity_id: str, **more: str) -> str:
    return "/entity?" + urlencode({"kind": KIND, "id": entity_id, **more})


def line(page: Seen, row: str) -> str:
    """The row of a table, as it is read."""
    part = page.html.split(f'<tr id="{row}">')[1].partition("</tr>")[0]
    return Seen(page.person, 200, "", {}, part).text


def act(person: Person, path: str, **fields: str) -> Seen:
    return person.get(path).form(path.partition("?")[0]).send(**fields)


def audited(session: Session, action: str) -> tuple[str, str, str | None, Any]:
    session.rollback()
    query = sa.select(Audit.actor, Audit.subject, Audit.reason, Audit.detail).where(Audit.action == action)
    row = session.execute(query.order_by(Audit.id.desc()).limit(1)).one()
    return (row[0], row[1], row[2], row[3])


def queue(session: Session, name: str) -> Any:
    session.rollback()
    return session.execute(sa.select(*Queue.__table__.c).where(Queue.name == name)).one()


def harmless(page: Seen) -> None:
    assert page.status == 200, page.path
    for word in ("<script>alert", "<img", ">49<"):
        assert word not in page.html, page.path


# What they say


def test_the_list(person: Person) -> None:
    page = person.get("/stages")
    predict, publish = line(page, "stage-voucher.predict"), line(page, "stage-voucher.publish")
    for words in ("100/s burst 20, 8 at once", "1 of 8", "late", "no worker", "walk 60.0%"):
        assert words in predict, words
    for words in ("paused", "3 asks failed"):
        assert words in publish, words
    assert "rests" in line(page, "stage-voucher.watchless")
    assert "There is no such kind" in person.get("/stages?kind=car").text


def test_a_stage(person: Person) -> None:
    page = person.get("/stage?name=voucher.predict")
    for words in ("100/s, saved up 20", "Walk", "60.0%", "it goes round in circles", "no live worker takes them"):
        assert words in page.text, words
    assert "e2" in page.text
    assert "e3" not in page.text
    assert "e3" in person.get("/stage?name=voucher.predict&low=yes").text
    assert "should_process failed 3 times" in person.get("/stage?name=voucher.publish").text


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/stage", 400, "name is needed"),
        ("/stage?name=voucher.predikt", 404, "did you mean voucher.predict?"),
        ("/stage/pause?name=nobody", 404, "no stage"),
        ("/entity?kind=voucher", 400, "id is needed"),
        ("/entity?kind=car&id=1", 404, "no kind"),
        ("/entity?kind=voucher&id=" + "x" * 3000, 413, "too large"),
        ("/parked?stage=nobody", 404, "no stage"),
        (f"/stage?{urlencode({'name': EVIL})}", 404, "no stage"),
    ],
)
def test_refused(person: Person, path: str, status: int, told: str) -> None:
    page = person.get(path)
    assert page.status == status
    assert told.lower() in page.text.lower()
    assert "<script>alert" not in page.html


def test_an_entity(person: Person) -> None:
    page = person.get(entity("e1"))
    for words in ("w-1/7", "works on it for predict", "41", "its last event", "JsonState", "secret-of-e1", "price"):
        assert words in page.text, words
    assert "not-to-be-read" not in page.text
    assert "Tidemill 41" not in page.text
    assert "its class is not here" in page.text
    assert "in the queue of no stage" in person.get(entity("nobody")).text
    circle = person.get(entity("e6")).text
    assert "32 visits led here without a pause" in circle
    assert "predict publish predict" in circle


def test_states_are_for_operators(viewer: Person) -> None:
    page = viewer.get(entity("e1"))
    assert "JsonState" in page.text
    assert "secret-of-e1" not in page.html
    assert "only for operators" in page.text
    assert [form.action for form in page.forms if form.method == "post"] == ["/sign-out"]


def test_parked_by_error(person: Person) -> None:
    page = person.get("/parked")
    assert "no price of" in page.text
    assert page.html.count('<tr id="group-') >= 3
    assert page.html.count('<tr id="parked-') >= 4
    found = page.form("/parked").send(error="no price", stage="publish")
    assert found.html.count('<tr id="group-') == 1
    assert found.html.count('<tr id="parked-') == 2
    assert "Nothing of the kind is parked" in page.form("/parked").send(error="odd").text


def test_what_a_producer_wrote_is_escaped(person: Person) -> None:
    paths = ["/stages", "/parked", "/stage?name=voucher.predict", "/stage?name=voucher.publish", entity(EVIL)]
    paths += ["/stage?name=voucher.watchless", entity("e4"), "/parked?" + urlencode({"error": EVIL}), "/parked/redrive"]
    paths += [entity(EVIL, stage="publish").replace("?", "/redrive?"), entity(EVIL).replace("?", "/offer?")]
    for path in paths:
        harmless(person.get(path))


# What is done


def test_pause_resume_and_undo(person: Person, session: Session) -> None:
    page = act(person, "/stage/pause?name=voucher.predict", reason="too hot")
    assert "voucher.predict is paused." in page.text
    assert queue(session, "stage.voucher.predict").paused
    assert audited(session, "stage.pause")[:3] == ("olga@console", "voucher.predict", "too hot")
    assert "It is paused already" in person.get("/stage/pause?name=voucher.predict").text
    assert "voucher.predict is open." in page.form("/stage/resume").send().text
    assert not queue(session, "stage.voucher.predict").paused
    assert "It is not paused" in person.get("/stage/resume?name=voucher.predict").text


def test_limits_and_undo(person: Person, session: Session) -> None:
    page = act(person, "/stage/limit?name=voucher.predict", rate="6/min", parallel="none")
    assert "rate 6/min, at once none" in page.text
    row = queue(session, "stage.voucher.predict")
    assert (row.rate, row.max_parallel, row.burst) == (0.1, None, 20)
    assert audited(session, "stage.limit")[3] == {"rate": "6/min", "max_parallel": None}
    page.form("/stage/limit").send()
    row = queue(session, "stage.voucher.predict")
    assert (row.rate, row.max_parallel, row.burst) == (100, 8, 20)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("rate", "fast", "fast"),
        ("parallel", "0", "whole number"),
        ("burst", "x", "number"),
        ("burst", "0", "1 or more"),
    ],
)
def test_limits_that_are_none(person: Person, session: Session, field: str, value: str, told: str) -> None:
    page = act(person, "/stage/limit?name=voucher.predict", **{field: value})
    assert page.status == 400
    assert told in page.text
    assert queue(session, "stage.voucher.predict").rate == 100
    assert "nothing is other than it was" in act(person, "/stage/limit?name=voucher.predict").text


def test_a_walk_is_steered(person: Person, session: Session) -> None:
    visit_rows.register(session, "walked", kind=KIND)
    pages_stages.walk(session, "walked", None)
    session.commit()

    def walk() -> tuple[str, float | None]:
        session.rollback()
        row = session.execute(sa.select(Resweep.state, Resweep.rate).where(Resweep.stage == "walked")).one()
        return row[0], row[1]

    name = "?name=voucher.walked"
    page = act(person, f"/stage/resweep/pause{name}")
    assert "is paused" in page.text
    assert walk() == ("paused", 50.0)
    page.form("/stage/resweep/resume").send()
    assert walk() == ("running", 50.0)
    act(person, f"/stage/resweep/resume{name}", rate="10/s", reason="slower")
    assert walk() == ("running", 10.0)
    assert audited(session, "resweep.rate")[:3] == ("olga@console", "voucher.walked", "slower")
    assert act(person, f"/stage/resweep/resume{name}", rate="odd").status == 400
    act(person, f"/stage/resweep/cancel{name}")
    assert walk()[0] == "cancelled"
    assert person.get(f"/stage/resweep/cancel{name}").status == 400
    assert "start the console with TIDEMILL_MODULES" in person.get(f"/stage/resweep{name}").text


def test_offering(person: Person, session: Session) -> None:
    page = act(person, entity("new").replace("?", "/offer?"), stage="publish", at="2h", low="yes", reason="look")
    assert "It is in the queue of publish" in page.text
    row = visit_rows.row(session, "new", "publish")
    assert row is not None
    assert row["due_at"] is None
    assert row["low_at"] > visit_rows.now(session)
    assert audited(session, "stage.offer")[:3] == ("olga@console", "voucher.publish", "look")
    again = act(person, entity("new").replace("?", "/offer?"), stage="publish", at="3h", low="yes")
    assert "was already, for no later time, in" in again.text
    assert act(person, entity("new").replace("?", "/offer?"), stage="publish", at="soon").status == 400


def test_one_is_redriven(person: Person, session: Session) -> None:
    visit_rows.visit(session, "one", "publish", state="parked", kind=KIND)
    path = entity("one", stage="publish").replace("?", "/redrive?")
    assert "publish visits it again" in act(person, path).text
    row = visit_rows.row(session, "one", "publish")
    assert row is not None
    assert (row["state"], row["attempts"], row["error"]) == ("waiting", 0, None)
    assert "It is not parked in publish" in person.get(path).text


def test_a_group_is_redriven_and_what_is_parked_since_stays(person: Person, session: Session) -> None:
    visit_rows.register(session, "colour", kind=KIND)
    visit_rows.errors(session, ["no colour 1", "no colour 2", "other"], "colour", kind=KIND)
    page = person.get("/parked?error=no+colour")
    link = next(each for each in page.links if "/parked/redrive" in each and "group=" in each)
    question = person.get(link)
    assert "2 visits that are parked now" in question.text
    visit_rows.visit(session, "late", "colour", state="parked", error="no colour 3", kind=KIND)
    memory.forget_all()
    assert "2 visits redriven." in question.form("/parked/redrive").send(reason="mended").text
    states = visit_rows.states(session, "colour")
    assert states == {"entity-1": "waiting", "entity-2": "waiting", "entity-3": "parked", "late": "parked"}
    assert audited(session, "stage.redrive")[2] == "mended"
    path = "/parked/redrive?stage=voucher.colour"
    assert act(person, path, until="x").status == 400
    assert "2 visits redriven." in act(person, path).text
    assert "Nothing of the kind is parked" in person.get(path).text


def test_a_viewer_may_not(viewer: Person) -> None:
    for path in ("/stage/pause?name=voucher.predict", "/parked/redrive", entity("e4").replace("?", "/offer?")):
        assert viewer.get(path).status == 403


def test_a_stage_that_is_declared_no_more(person: Person, session: Session) -> None:
    visit_rows.register(session, "gone", removed_at=sa.func.now(), kind=KIND)
    visit_rows.visit(session, "of-gone", "gone", state="parked", error="gone for good", kind=KIND)
    memory.forget_all()
    assert "not declared any more" in person.get("/stage?name=voucher.gone").text
    path = entity("of-gone", stage="gone").replace("?", "/redrive?")
    assert "no worker would visit for it" in person.get(path).text
    assert "Nothing of the kind is parked" in person.get("/parked/redrive?error=gone+for+good").text
