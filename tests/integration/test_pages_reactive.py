"""The board of reactive tasks, and the page of one: what they say, refuse and escape."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import limits
from app.db import transaction
from tests.kit import reactive as kit
from tests.kit import reactive_cli as cli
from tests.kit.cli import live_worker
from tests.kit.pages import Person, Seen, signed_in
from tests.kit.reactive import MODULE, ORDERS, World, day
from triggers import All, ChunkDelta, Delta, RefDelay, operate, values
from triggers.looking import board
from triggers.model import Evaluation, MissedWindow, TaskRun
from triggers.trigger import Trigger

EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>"
ACTS = ("pause", "resume", "release", "run", "cancel", "forget", "rewind")
MART = ("mart.orders", "built_to")


@pytest.fixture
def world(engine: Engine, broker_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


@pytest.fixture
def person(world: World) -> Iterator[Person]:
    with signed_in() as found:
        yield found


def page_of(person: Person, task: str, **words: str) -> Seen:
    return person.get("/reactive/task?" + urlencode({"task": task} | words))


def rows(seen: Seen) -> list[str]:
    """The tasks that are listed."""
    return [part.partition('"')[0] for part in seen.html.split('<tr id="task-')[1:]]


# The board


def test_an_empty_board_says_what_to_do(person: Person) -> None:
    assert "Declare one with @reactive" in person.get("/reactive").text
    assert "There is nothing on the map yet" in person.get("/map").text
    assert "There is no pool yet" in person.get("/reactive/pools").text


def test_each_state_has_its_reason(person: Person, world: World) -> None:  # T24
    waits = world.task("waits", Delta(*ORDERS, "1d"), pool="marts")
    works = world.task("works", Delta(*MART, "1d"))
    idle = world.task("idle", Delta("none", "p", "1d"))
    paused = world.task("paused", Delta(*ORDERS, "1d"))
    operate.pause(paused)
    broken = world.task("broken", Delta(*ORDERS, "1d"), kit.fail, max_failures=1, pool="other")
    kit.advance(day(1))
    kit.advance(day(1), MART)
    world.poll()
    world.serve("other")
    kit.execute(
        sa.text(
            "UPDATE tidemill.run SET state = 'running', pass_key = gen_random_uuid(), claimed_by = 'w/7', "
            "recovery_time = now() + interval '1 hour' WHERE task = :task"
        ).bindparams(task=works)
    )
    seen = person.get("/reactive")
    assert rows(seen) == sorted([broken, idle, paused, waits, works])
    for words in (
        "no live worker takes pool marts",
        "works on it (w/7)",
        "none.p must grow by 1d: it has no value yet",
        "somebody paused it; its trigger holds",
        "Failed: on purpose",
    ):
        assert words in seen.text, words
    for state, task in (("waiting", waits), ("running", works), ("idle", idle), ("paused", paused)):
        assert rows(person.get(f"/reactive?state={state}")) == [task], state
    assert rows(person.get("/reactive?state=quarantined")) == [broken]
    assert rows(person.get("/reactive?state=removed")) == []
    assert rows(person.get("/reactive?pool=marts")) == [waits]
    assert rows(person.get("/reactive?text=ROKE")) == [broken]
    assert rows(person.get("/reactive?text=%25")) == []
    assert "No task matches" in person.get("/reactive?pool=none").text
    assert person.get("/reactive?state=odd").status == 400


def test_what_backs_off_is_held_or_was_missed(person: Person, world: World) -> None:  # T21, T22, T23
    backing = world.task("backing", Delta(*ORDERS, "1d"), kit.fail, backoff="1h")
    held = world.task("held", Delta(*ORDERS, "1d"), pool="marts")
    kit.advance(day(1))
    world.poll()
    world.serve()
    with transaction() as session:
        limits.configure(session, "reactive.marts", max_parallel=1)
        keep = {"kept_ranks": [-10], "kept_until": [datetime.now(UTC) + timedelta(hours=1)]}
        session.execute(sa.update(limits.Queue).where(limits.Queue.name == "reactive.marts").values(**keep))
        session.add(MissedWindow(task=held, opened_at=day(1), closed_at=sa.func.now(), reason="it was late"))
    with live_worker("reactive.marts"):
        assert rows(person.get("/reactive?state=backing+off")) == [backing]
        assert rows(person.get("/reactive?state=held")) == [held]
        seen = person.get("/reactive?state=missed")
        assert rows(seen) == [held]
        assert "1 missed" in seen.text
        assert "free slots of pool marts are kept for what is more important" in seen.text
    assert "it was late" in page_of(person, held).text


def test_the_board_is_paged_by_key(person: Person, world: World) -> None:
    for number in range(120):
        world.declare(f"t{number:03}", Delta(*ORDERS, "1d"))
    world.sync()
    found, path = [], "/reactive?text=t"
    while True:
        seen = person.get(path)
        found += rows(seen)
        further = [link for link in seen.links if "after=" in link]
        if not further:
            break
        path = f"/reactive{further[0]}"
    assert found == [f"{MODULE}.t{number:03}" for number in range(120)]


def test_only_what_is_shown_is_evaluated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        world.declare(f"t{number:03}", Delta(*ORDERS, "1d"))
    world.sync()
    asked: list[int] = []
    real = values.read

    def read(session: Session, wanted: list[tuple[str, Trigger]]) -> values.Values:
        asked.append(len(wanted))
        return real(session, wanted)

    monkeypatch.setattr(values, "read", read)
    with transaction() as session:
        assert len(board.page(session, board.Wanted(), 10)) == 10
    assert asked == [10]


# The page of a task


def test_a_task_says_all_that_decides(person: Person, world: World) -> None:  # T24
    both = All(ChunkDelta(*ORDERS, "day", 2), RefDelay(*ORDERS, "src.orders", "loaded_to", "1d"))
    task = world.task("mart", both, produces=[MART], pool="marts")
    kit.advance(day(1))
    kit.advance(day(1), ("src.orders", "loaded_to"))
    assert world.step("marts") == 1
    kit.advance(day(2))
    seen = page_of(person, task)
    for words in (
        "all of 2 must hold: 1 does",
        "must move on by 2 days: last seen 2026-01-02",
        "2026-01-04 00:00:00",
        "Missing 1d",
        "dds.orders.loaded_to",
        "mart.orders.built_to",
        "Compared with",
        "never to 2026-01-02 00:00:00",
    ):
        assert words in seen.text, words
    assert 'aria-label="50 % of the way from last seen to enough"' in seen.html
    assert seen.html.count('<g class="lane">') == 2
    assert seen.html.count('class="run ok"') == 1
    assert '<title id="timeline-title">Time line of' in seen.html
    assert "The same as a table" in seen.text
    assert person.get(f"/reactive/task?task={task}&length=1y").status == 200
    assert person.get(f"/reactive/task?task={task}&length=2y").status == 400


def test_a_past_evaluation(person: Person, world: World, session: Session) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"))
    kit.advance(day(1))
    world.step()
    found = session.scalars(sa.select(Evaluation).order_by(Evaluation.id)).all()
    seen = page_of(person, task, evaluation=str(found[0].id))
    assert "As it was evaluated" in seen.text
    assert "never seen before, so any value fires" in seen.text
    assert "Back to now" in seen.text
    assert 'class="chosen"' in seen.html
    assert "As it was evaluated" in page_of(person, task, at="now").text
    assert "has no evaluation of" in page_of(person, task, at="2020-01-01T00:00:00Z").text
    for wrong in ("soon", "in 2h", "2026-01-01", "99999999999d ago", EVIL):
        assert page_of(person, task, at=wrong).status == 400, wrong
    other = world.task("other", Delta(*ORDERS, "1d"))
    assert page_of(person, other, evaluation=str(found[0].id)).status == 404
    assert page_of(person, "none").status == 404
    assert person.get("/reactive/task").status == 400


def test_runs_are_paged_and_told_with_their_windows(person: Person, world: World) -> None:
    task = world.task("mart", Delta(*ORDERS, "1d"), kit.fail, max_failures=3, backoff="1s")
    kit.advance(day(1))
    world.poll()
    for _ in range(3):
        world.pass_backoff()
        world.serve()
    seen = page_of(person, task)
    assert "quarantined" in seen.text
    assert "Failed: on purpose" in seen.text
    assert "3 of 3" in seen.text
    with transaction() as session:
        for number in range(20):
            made = {"task": task, "queue": "reactive.default", "priority": 0, "generation": number}
            session.execute(sa.insert(TaskRun).values(**made, state="done", ended_at=sa.func.now()))
    seen = page_of(person, task)
    (older,) = [link for link in seen.links if "before=" in link]
    assert seen.html.count('<tr id="run-') == 15
    assert person.get(f"/reactive/task{older}").html.count('<tr id="run-') == 6


def test_what_a_producer_wrote_is_escaped(person: Person, world: World) -> None:
    evil = EVIL.replace(",", "")
    trigger = Delta(evil, evil, "1d")
    cli.register(cli.definition(evil, trigger=trigger, module=evil, pool=evil[:90], produces=((evil, evil),)))
    kit.advance(day(1), (evil, evil))
    world.poll()
    error = {"error": evil, "claimed_by": evil, "requested_by": evil, "kind": "manual", "outputs": {evil: evil}}
    kit.execute(sa.update(TaskRun).values(**error))
    operate.pause(evil)
    with transaction() as session:
        session.add(MissedWindow(task=evil, opened_at=day(1), closed_at=sa.func.now(), reason=evil))
        told = {"task": evil, "at": sa.func.now(), "fired": True, "cause": evil, "values": []}
        session.add(Evaluation(**told, trigger=trigger.to_json()))
    quoted = quote(evil)
    for path in (
        "/reactive",
        f"/reactive?text={quoted}",
        f"/reactive?pool={quoted}",
        f"/reactive/task?task={quoted}",
        f"/reactive/task?task={quoted}&at=now",
        f"/reactive/task?task={quoted}x",
        "/reactive/pools",
        "/map",
        f"/map?text={quoted}",
        f"/map?task={quoted}",
        f"/map?entity={quoted}",
        f"/map?entity={quoted}x",
        f"/dataset?entity={quoted}",
        f"/dataset?entity={quoted}&parameter={quoted}",
        f"/dataset?entity={quoted}x",
        *(f"/reactive/{word}?task={quoted}" for word in ACTS),
        f"/reactive/rewind?task={quoted}&to=now",
        f"/dataset/advance?entity={quoted}&parameter={quoted}",
        f"/dataset/advance?entity={quoted}&parameter={quoted}&value=now",
        f"/dataset/restate?entity={quoted}&parameter={quoted}&value=now",
        *(f"/reactive/pools/{word}?pool={quote(evil[:90])}" for word in ("limit", "pause", "resume")),
    ):
        seen = person.get(path)
        assert seen.status == (404 if path.endswith("x") else 200), path
        assert "<script>alert" not in seen.html, path
        assert "<img" not in seen.html, path
    cli.unregister()
