"""What an operator does with reactive tasks and their pools on the pages: asked, audited, undone."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.audit import Audit
from app.limits import Queue
from tests.kit import reactive as kit
from tests.kit.pages import Person, Seen, signed_in
from tests.kit.reactive import ORDERS, World, day
from triggers import Delta, pool

MART = ("mart.orders", "built_to")


@pytest.fixture
def world(engine: Engine, broker_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


@pytest.fixture
def person(world: World) -> Iterator[Person]:
    with signed_in() as found:
        yield found


def address(act: str, **words: object) -> str:
    return f"{act}?{urlencode(words)}"


def do(person: Person, act: str, form: dict[str, str] | None = None, **words: object) -> Seen:
    """Its question, answered."""
    question = person.get(address(act, **words))
    assert question.status == 200, question.text
    return question.form(act).send(**(form or {}))


def undo(seen: Seen, act: str) -> Seen:
    return seen.form(act).send()


def audited(session: Session, action: str) -> list[tuple[str, str | None]]:
    session.rollback()
    found = session.scalars(sa.select(Audit).where(Audit.action == action).order_by(Audit.id)).all()
    assert {each.actor for each in found} <= {"olga@console"}
    return [(each.subject, each.reason) for each in found]


def test_pause_and_resume(person: Person, world: World, session: Session) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    world.poll()
    question = person.get(address("/reactive/pause", task=task))
    assert "which waits, is taken back" in question.text
    assert kit.row(task).paused is False
    seen = do(person, "/reactive/pause", {"reason": "the disk is full"}, task=task)
    assert "is paused." in seen.text
    assert kit.row(task).paused
    assert kit.states(task) == ["cancelled"]
    assert audited(session, "reactive.pause") == [(task, "the disk is full")]
    again = undo(seen, "/reactive/resume")
    assert "is resumed; now it is" in again.text
    assert not kit.row(task).paused
    assert kit.states(task) == ["cancelled", "waiting"]


def test_release(person: Person, world: World) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"), kit.fail, max_failures=1)
    kit.advance(day(1))
    world.step()
    assert "Release…" in person.get(address("/reactive/task", task=task)).text
    assert "is released; now it is fired: its run waits" in do(person, "/reactive/release", task=task).text
    assert kit.row(task).quarantined_at is None
    assert "was not quarantined" in do(person, "/reactive/release", task=task).text


def test_run_by_hand_and_cancel(person: Person, world: World, session: Session) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"))
    words = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-03T00:00:00Z", "record": "yes", "reason": "anew"}
    seen = do(person, "/reactive/run", words, task=task)
    assert "waits for a worker" in seen.text
    (row,) = kit.runs(task)
    assert (row.kind, row.record, row.window_from, row.window_to) == ("manual", True, day(0), day(2))
    assert row.requested_by == "olga@console"
    assert audited(session, "reactive.run") == [(task, "anew")]
    assert "wait for its end, or cancel it first" in person.get(address("/reactive/run", task=task)).text
    assert "is cancelled" in undo(seen, "/reactive/cancel").text
    assert kit.states(task) == ["cancelled"]
    assert "has no run" in person.get(address("/reactive/cancel", task=task, run=row.id)).text


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"from": "2026-01-01T00:00:00Z"}, "a window has two ends"),
        ({"from": "2026-01-03T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "its end must be later"),
        ({"from": "soon", "to": "later"}, "From: 'soon' is neither a time"),
        ({"from": "2026-01-01", "to": "now"}, "has no time zone"),
    ],
)
def test_a_window_that_is_none_is_told_above_the_form(
    person: Person, world: World, form: dict[str, str], says: str
) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"))
    seen = do(person, "/reactive/run", form, task=task)
    assert seen.status == 400
    assert says in seen.text
    assert seen.form("/reactive/run").fields["from"] == form["from"]
    assert kit.runs(task) == []


def test_rewind_shows_what_it_would_do_and_is_put_back(person: Person, world: World, session: Session) -> None:  # T15
    task = world.task("mart", Delta(*ORDERS, "1d"))
    kit.advance(day(3))
    world.step()
    first = person.get(address("/reactive/rewind", task=task))
    shown = first.form("/reactive/rewind").send(to="2026-01-02T00:00:00Z")
    for words in ("2026-01-04T00:00:00Z", "2026-01-02T00:00:00Z", "The task would start at once"):
        assert words in shown.text, words
    assert kit.seen(task)[ORDERS] == day(3)
    seen = shown.form("/reactive/rewind").send(reason="wrong")
    assert "has seen nothing after 2026-01-02T00:00:00Z" in seen.text
    assert kit.seen(task)[ORDERS] == day(1)
    assert audited(session, "reactive.rewind") == [(task, "wrong")]
    assert "has seen again" in undo(seen, "/reactive/put-back").text
    assert kit.seen(task)[ORDERS] == day(3)
    assert audited(session, "reactive.put_back") == [(task, None)]
    nothing = person.get(address("/reactive/rewind", task=task, to="2030-01-01T00:00:00Z"))
    assert "nothing to take back" in nothing.text


def test_what_was_seen_since_is_not_put_back(person: Person, world: World) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"))
    kit.advance(day(3))
    world.step()
    seen = do(person, "/reactive/forget", task=task)
    assert kit.seen(task) == {}
    kit.advance(day(5))
    world.step()
    refused = undo(seen, "/reactive/put-back")
    assert refused.status == 400
    assert "has seen dds.orders.loaded_to anew since" in refused.text
    assert kit.seen(task)[ORDERS] == day(5)


@pytest.mark.parametrize(
    "seen",
    ["", "1", "[1]", '[["a", "p", "soon", null]]', "[" * 1900, "[[1, 2, 3, 4]]", '[["a", "p", "2026-01-01", null]]'],
)
def test_nonsense_is_not_put_back(person: Person, world: World, seen: str) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"))
    assert person.get(address("/reactive/put-back", task=task, seen=seen)).status == 400


def test_limits_of_a_pool(person: Person, world: World, session: Session) -> None:  # T20
    pool("marts", max_parallel=4)
    world.task("mart", Delta(*ORDERS, "1d"), pool="marts")
    seen = do(person, "/reactive/pools/limit", {"parallel": "2", "rate": "6/min"}, pool="marts")
    assert "Pool marts: 2 at once, 6/min starts" in seen.text
    assert "the code says 4 at once, any starts" in seen.text
    queue = sa.select(Queue).where(Queue.name == "reactive.marts")
    assert session.scalars(queue).one().max_parallel == 2
    undo(seen, "/reactive/pools/limit")
    session.rollback()
    found = session.scalars(queue).one()
    assert (found.max_parallel, found.rate) == (4, None)
    for wrong in ({"parallel": "0"}, {"parallel": "x"}, {"rate": "often"}):
        assert do(person, "/reactive/pools/limit", wrong, pool="marts").status == 400
    assert person.get("/reactive/pools/limit?pool=mart").status == 404
    assert len(audited(session, "reactive.pool")) == 2


def test_pause_of_a_pool(person: Person, world: World, session: Session) -> None:
    world.task("mart", Delta(*ORDERS, "1d"), pool="marts")
    kit.advance(day(1))
    world.poll()
    seen = do(person, "/reactive/pools/pause", {"reason": "night"}, pool="marts")
    assert "paused" in seen.text
    assert world.serve("marts") == 0
    assert "pool marts is paused" in person.get("/reactive").text
    undo(seen, "/reactive/pools/resume")
    assert world.serve("marts") == 1
    assert audited(session, "reactive.pool") == [("marts", "night"), ("marts", None)]


def test_advance_shows_who_would_start(person: Person, world: World, session: Session) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    world.step()
    first = person.get(address("/dataset/advance", entity=ORDERS[0], parameter=ORDERS[1]))
    shown = first.form("/dataset/advance").send(value="2026-01-05T00:00:00Z")
    assert "One task would start" in shown.text
    assert task in shown.text
    seen = shown.form("/dataset/advance").send()
    assert "dds.orders.loaded_to is at 2026-01-05T00:00:00Z" in seen.text
    back = undo(seen, "/dataset/restate")
    assert "is restated to 2026-01-02T00:00:00Z" in back.text
    assert audited(session, "ctl.restate") == [("dds.orders.loaded_to", "taken back: it was moved by mistake")]
    behind = address("/dataset/advance", entity=ORDERS[0], parameter=ORDERS[1], value="2020-01-01T00:00:00Z")
    assert person.get(behind).status == 409


def test_a_relative_value_is_that_which_was_shown(person: Person, world: World) -> None:
    world.task("mart", Delta(*ORDERS, "1d"))
    shown = person.get(address("/dataset/advance", entity="a", parameter="p", value="2h ago"))
    moment = shown.form("/dataset/advance").fields["moment"]
    assert f"a.p is at {moment}" in shown.form("/dataset/advance").send().text


def test_restate_names_the_tasks_that_rest_on_it(person: Person, world: World, session: Session) -> None:  # T15
    task = world.task("mart", Delta(*ORDERS, "1d"))
    kit.advance(day(3))
    shown = person.get(address("/dataset/restate", entity=ORDERS[0], parameter=ORDERS[1], value="2026-01-01T00:00:00Z"))
    assert "1 tasks rest on it" in shown.text
    assert task in shown.text
    assert "rests on what it has seen of it" in shown.text
    assert shown.form("/dataset/restate").send().status == 400
    seen = shown.form("/dataset/restate").send(reason="the load was empty")
    assert "is restated to 2026-01-01T00:00:00Z" in seen.text
    assert audited(session, "ctl.restate") == [("dds.orders.loaded_to", "the load was empty")]
    assert "is restated to 2026-01-04T00:00:00Z" in undo(seen, "/dataset/restate").text


def test_who_only_looks_is_let_to_nothing(world: World) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"))
    with signed_in("viewer") as person:
        seen = person.get(address("/reactive/task", task=task))
        assert "Pause…" not in seen.text
        for act in ("pause", "resume", "release", "run", "cancel", "rewind", "forget", "put-back"):
            assert person.get(address(f"/reactive/{act}", task=task)).status == 403, act
        assert person.get(address("/dataset/restate", entity="a", parameter="p", value="now")).status == 403
        assert person.get("/reactive/pools/limit?pool=default").status == 403
