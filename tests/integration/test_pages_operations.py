"""Pages of operations, and of actors and their settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import Audit
from app.db import transaction
from app.embedded import OwnServers
from processes import listing
from processes.listing import Listed
from recovery import operations
from recovery.operations import OperationState
from tests.kit import console, pages_world, standing
from tests.kit.database import Databases
from tests.kit.pages import Person


@pytest.fixture(scope="module")
def url(_servers: OwnServers, _databases: Databases) -> Iterator[str]:
    """Each test changes things of its own."""
    with standing.console_at(_servers, _databases) as found:
        yield found


@pytest.fixture(scope="module")
def world(url: str) -> dict[str, Any]:
    return pages_world.fill()


@pytest.fixture(scope="module")
def person(url: str, world: dict[str, Any]) -> Person:
    found = Person(url)
    found.sign_in(console.token("olga", "operator"))
    return found


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with transaction() as found:
        yield found


def actor(name: str) -> Listed:
    with transaction() as session:
        (found,) = listing.actors(session, name)
    return found


def test_the_list_and_one_that_has_ended(person: Person, world: dict[str, Any]) -> None:
    page = person.get("/operations")
    for words in ("check", "restart-task", "DONE", "6 of 6"):
        assert words in page.text
    assert "check" not in person.get("/operations?live=yes").text.partition("Operations, the latest first")[2]
    shown = person.get(f"/operations/{world['operation']}")
    for words in ("6 of 6 (100.0%)", "well: task_broken, waits", "process 3"):
        assert words in shown.text
    assert "There are no such items" in person.get(f"/operations/{world['operation']}?items=FAILED").text
    assert person.get(f"/operations/{world['operation']}?items=ODD").status == 400
    assert person.get("/operations/4711").status == 404


def test_operations_of_a_kind(person: Person) -> None:
    def listed(query: str) -> str:
        return person.get(f"/operations?{query}").text.partition("Operations, the latest first")[2]

    assert "check" in listed("kind=check")
    assert "restart-task" not in listed("kind=check")
    assert "restart-task" in listed("kind=restart-task&live=yes")
    assert "There is no abort operation." in person.get("/operations?kind=abort").text
    assert person.get("/operations?kind=other").status == 400


def test_steering_one(person: Person, world: dict[str, Any], session: Session) -> None:
    number = world["paused_operation"]
    page = person.get(f"/operations/{number}")
    assert "/pause" not in str(page.links)
    seen = person.get(f"/operations/{number}/resume").form("/resume").send(rate="7/s", reason="slowly")
    assert f"Operation {number} goes on." in seen.text
    assert (operations.show(number).state, operations.show(number).rate) == (OperationState.RUNNING, 7.0)
    back = seen.form("/pause").send()
    assert f"Operation {number} is paused." in back.text
    assert operations.show(number).state is OperationState.PAUSED
    wrong = person.get(f"/operations/{number}/resume").form("/resume").send(rate="often")
    assert wrong.status == 400
    assert "rate" in wrong.text
    assert wrong.form("/resume").fields["rate"] == "often"
    done = person.get(f"/operations/{number}/cancel").form("/cancel").send()
    assert f"Operation {number} is cancelled; 2 of 2 are left alone." in done.text
    assert "It is CANCELLED" in person.get(f"/operations/{number}/cancel").text
    assert "Nothing of it has failed" in person.get(f"/operations/{number}/retry").text
    ours = sa.and_(Audit.actor == "olga@console", Audit.detail["id"].as_integer() == number)
    actions = session.scalars(sa.select(Audit.action).where(ours).order_by(Audit.id))
    assert list(actions) == ["operation.resume", "operation.pause", "operation.cancel"]


def test_starting_one_from_a_search(person: Person, world: dict[str, Any]) -> None:
    page = person.get("/processes?state=BROKEN")
    question = person.get(next(each for each in page.links if "kind=restart-task" in each))
    for words in ("Restart 2 broken tasks?", f"process {world['broken']}, task 3", "the bank says 503 to o-3"):
        assert words in question.text
    one = question.form("/operations/start").send(limit="1")
    assert "Restart 1 broken task?" in one.text
    checked = question.form("/operations/start").send(kind="check")
    assert "Check 2 processes?" in checked.text
    (form,) = [each for each in question.forms if each.method == "post" and "start" in each.action]
    seen = form.send(rate="5/min", reason="the bank is back")
    assert "is started: restart-task" in seen.text
    made = operations.overview(1)[0]
    assert (made.kind, made.total, made.reason, made.created_by) == (
        "restart-task",
        2,
        "the bank is back",
        "olga@console",
    )
    assert made.selection == {"states": ["BROKEN"]}
    assert seen.form("/pause").send().status == 200
    assert operations.show(made.id).state is OperationState.PAUSED


def test_starting_over_nothing_or_everything(person: Person) -> None:
    assert "Nothing matches." in person.get("/operations/start?kind=abort&custom_id=nobody").text
    assert "it is over everything that there is" in person.get("/operations/start?kind=abort").text
    assert person.get("/operations/start?kind=redrive").status == 400
    assert person.get("/operations/start?kind=abort&name=nobody").status in (400, 404)


def test_actors(person: Person) -> None:
    page = person.get("/actors")
    for words in ("fulfil", "decider", "charge", "tell", "blocked"):
        assert words in page.text
    assert person.get("/actor?name=nobody").status == 404
    assert person.get("/actor").status == 400


def test_settings_are_set_and_put_back(person: Person, session: Session) -> None:
    form = person.get("/actor/set?name=charge").form("/actor/set")
    assert form.fields["work_timeout"] == "1min"
    seen = form.send(work_timeout="5min", max_parallel="3", repeatable="false", reason="their API is slow")
    assert "work_timeout is 5min, was 1min" in seen.text
    assert "changed by an operator" in seen.text
    now = actor("charge")
    assert (now.settings["work_timeout"], now.max_parallel, now.settings["repeatable"]) == (
        timedelta(minutes=5),
        3,
        False,
    )
    back = seen.form("/actor/set").send()
    assert "work_timeout is 1min, was 5min" in back.text
    assert actor("charge").changed == []
    ours = sa.and_(Audit.action == "actor.set", Audit.actor == "olga@console", Audit.subject == "charge")
    rows = session.scalars(sa.select(Audit).where(ours).order_by(Audit.id))
    assert [each.reason for each in rows] == ["their API is slow", None]


@pytest.mark.parametrize(
    ("field", "value"), [("work_timeout", "soon"), ("max_parallel", "-1"), ("retry", "x"), ("repeatable", "odd")]
)
def test_a_setting_that_cannot_be(person: Person, field: str, value: str) -> None:
    wrong = person.get("/actor/set?name=charge").form("/actor/set").send(**{field: value})
    assert wrong.status == 400
    assert field in wrong.text
    assert actor("charge").changed == []


def test_nothing_changed_is_told(person: Person) -> None:
    seen = person.get("/actor/set?name=charge").form("/actor/set").send()
    assert seen.status == 400
    assert "nothing is other than it was" in seen.text


def test_blocking_and_back(person: Person) -> None:
    seen = person.get("/actor/block?name=ship").form("/actor/block").send(reason="they are down")
    assert "ship is blocked." in seen.text
    assert actor("ship").blocked
    assert "It is blocked already." in person.get("/actor/block?name=ship").text
    assert "ship is open." in seen.form("/actor/unblock").send().text
    assert not actor("ship").blocked
    assert "It is not blocked." in person.get("/actor/unblock?name=ship").text
