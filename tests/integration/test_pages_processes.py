"""Pages of processes: searched for, looked at, restarted, aborted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from app.audit import Audit
from app.console.pages import process
from app.console.web import memory
from app.db import transaction
from app.embedded import OwnServers
from processes import showing
from processes.preferences import configure
from processes.states import ProcessState
from tests.kit import console, pages_world, standing
from tests.kit import process_rows as r
from tests.kit.database import Databases
from tests.kit.pages import Person, Seen


@pytest.fixture(scope="module")
def url(_servers: OwnServers, _databases: Databases) -> Iterator[str]:
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


def listed(page: Seen) -> list[int]:
    return [int(each.partition('"')[0]) for each in page.html.split('<tr id="process-')[1:]]


def state(process_id: int) -> ProcessState:
    return showing.show(process_id).state


def test_searching(person: Person, world: dict[str, Any]) -> None:
    page = person.get("/processes")
    everything = sorted(world[name] for name in ("finished", "active", "broken", "hostile", "aborted", "registered"))
    assert listed(page) == everything[::-1]
    form = page.form("/processes")
    assert listed(form.send(state="FINISHED")) == [world["finished"]]
    assert listed(form.send(custom_id="o-3")) == [world["broken"]]
    assert listed(form.send(text="bank o-3")) == [world["broken"]]
    assert listed(form.send(actor="charge", state="BROKEN")) == [world["hostile"], world["broken"]]
    assert listed(form.send(attribute="note=o-2", since="2h")) == [world["active"]]
    assert listed(person.get(f"/processes?before={world['active']}")) == [world["finished"]]
    assert "Nothing matches" in form.send(custom_id="nobody").text


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("name", "fulfill", "did you mean fulfil?"),
        ("since", "yesterday", "since"),
        ("fingerprint", "x", "16 hexadecimal digits"),
        ("attribute", "shop", "name=value"),
        ("text", "!!", "no word"),
    ],
)
def test_what_cannot_be_searched_by_is_told_above_the_list(person: Person, field: str, value: str, told: str) -> None:
    page = person.get("/processes").form("/processes").send(**{field: value})
    assert page.status == 200
    assert told in page.text
    assert listed(page) == []


def test_searches_are_saved_used_and_removed(person: Person, world: dict[str, Any]) -> None:
    found = person.get("/processes").form("/processes").send(state="BROKEN", attribute="note={whose}")
    assert "Nothing matches" in found.text
    question = person.get(next(each for each in found.links if "/processes/save" in each))
    seen = question.form("/processes/save").send(saved_name="of-order")
    assert "The search of-order is saved; it asks for whose." in seen.text
    assert "needs whose" in seen.text
    assert listed(seen.form("/processes").send(**{"set-whose": "o-3"})) == [world["broken"]]
    removal = person.get(next(each for each in seen.links if "remove-search" in each))
    assert "is removed" in removal.form("remove-search").send().text
    with transaction() as session:
        by = session.scalars(sa.select(Audit.actor).where(Audit.action == "template.remove"))
        assert list(by) == ["olga@console"]


def test_a_process_that_is_broken(person: Person, world: dict[str, Any]) -> None:
    page = person.get(f"/processes/{world['broken']}")
    for words in ("BROKEN", "the bank says 503 to o-3", "4 tasks wait for that", "5 attempts failed", "Traceback"):
        assert words in page.text
    assert page.html.count('class="box ') == 6
    assert "others like it" in page.text


@pytest.mark.parametrize("name", ["finished", "active", "aborted", "registered"])
def test_a_process_in_each_state(person: Person, world: dict[str, Any], name: str) -> None:
    page = person.get(f"/processes/{world[name]}")
    assert page.status == 200
    assert name.upper() in page.text
    aborting = [each for each in page.links if each.endswith("/abort")]
    assert bool(aborting) == (name in ("active", "registered"))


def test_what_there_is_not(person: Person) -> None:
    for path in ("/processes/4711", f"/processes/{2**63 - 1}"):
        assert person.get(path).status == 404
    for path in ("/processes/0", "/processes/x", f"/processes/{2**63}", "/processes/" + "9" * 400, "/processes/-1"):
        assert person.get(path).status == 404


def test_a_path_that_there_is_not_is_a_page(person: Person) -> None:
    for accept in ("text/html", "*/*"):
        seen = person.get("/nowhere", Accept=accept)
        assert (seen.status, seen.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert "There is nothing here" in seen.text
    assert person.get("/api/v1/nowhere").headers["content-type"] == "application/json"


def test_a_state_that_there_is_not_is_refused(person: Person) -> None:
    seen = person.get("/processes?state=NOPE")
    assert seen.status == 400
    assert "'NOPE' is no state: a process is" in seen.text
    assert person.get("/processes?state=broken").status == 200


def test_obstacles(person: Person, world: dict[str, Any]) -> None:
    for path, words in (
        (f"/processes/{world['finished']}/abort", "only one that goes on can be aborted"),
        (f"/processes/{world['registered']}/restart", "It has not begun"),
        (f"/processes/{world['broken']}/restart?from=99", "99"),
    ):
        question = person.get(path)
        assert question.status == 200
        assert words in question.text
        assert [form for form in question.forms if form.method == "post" and "sign-out" not in form.action] == []


def test_errors_by_kind(person: Person, world: dict[str, Any]) -> None:
    page = person.get("/processes/errors")
    assert "the bank says 503 to o-3" in page.text
    assert page.html.count('<tr id="kind-') == 2
    find = next(link for link in page.links if "fingerprint=" in link and "start" not in link)
    assert len(listed(person.get(find))) == 1


# The last one: it changes what the others look at.


def test_restarting_and_aborting(person: Person, world: dict[str, Any]) -> None:
    number = world["broken"]
    question = person.get(f"/processes/{number}/restart?from=3")
    for words in ("called again 4", "charge (task 3); ship (task 4, 5); tell (task 6)", "stay as they are 1"):
        assert words in question.text
    seen = person.get(f"/processes/{number}/restart").form("/restart").send(copy="yes")
    assert f"is the copy of {number}" in seen.text
    assert state(number) is ProcessState.BROKEN
    _only_what_is_meant(person, number)
    seen = person.get(f"/processes/{number}/restart?from=3").form("/restart").send(reason="the bank is back")
    assert f"Process {number} goes on: 4 tasks again." in seen.text
    assert state(number) is ProcessState.ACTIVE
    question = person.get(f"/processes/{number}/abort")
    assert "5 of 6 tasks have not finished" in question.text
    assert f"Process {number} is aborted." in question.form("/abort").send(reason="ordered twice").text
    assert state(number) is ProcessState.ABORTED
    again = question.form("/abort").send()
    assert again.status == 400
    assert "ABORTED" in again.text
    with transaction() as session:
        ours = sa.and_(Audit.actor == "olga@console", Audit.subject == str(number))
        rows = session.execute(sa.select(Audit.action, Audit.reason).where(ours).order_by(Audit.id)).all()
    assert [tuple(row) for row in rows] == [
        ("process.restart", None),
        ("process.restart", "the bank is back"),
        ("process.abort", "ordered twice"),
    ]


def test_a_large_one_is_read_in_parts(person: Person, world: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("WHOLE_MOST", 5), ("TASKS", 3), ("BROKEN", 1)):
        monkeypatch.setattr(process, name, number)
    memory.forget_all()
    first = person.get(f"/processes/{world['hostile']}")
    assert "It has 6 tasks: too many to be drawn and explained here." in first.text
    assert "3 PENDING" in first.text
    assert "1 BROKEN" in first.text
    assert 'id="broken-3"' in first.html
    assert tasks(first) == [1, 2, 3]
    second = person.get(f"/processes/{world['hostile']}?after=3")
    assert tasks(second) == [4, 5, 6]
    assert 'id="broken-3"' in second.html
    assert "after=3" in first.html
    assert 'rel="next"' not in second.html


def tasks(page: Seen) -> list[int]:
    return [int(each.partition('"')[0]) for each in page.html.split('<tr id="task-')[1:]]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("args", "o-1", "is no JSON"),
        ("args", "7", "must be a list of arguments"),
        ("kwargs", "[]", "must be a dict"),
        ("result", "NaN", "is no JSON"),
        ("args", "[1, 2, 3]", "charge"),
    ],
)
def test_what_a_task_cannot_be_given(person: Person, world: dict[str, Any], field: str, value: str, told: str) -> None:
    number = world["hostile"]
    question = person.get(f"/processes/{number}/restart?from=3")
    assert "500. Other named arguments" in question.text
    with r.nothing_declared(), r.actors(*pages_world.FUNCTIONS):
        seen = question.form("/restart").send(**{field: value})
    assert seen.status == 400
    assert told in seen.text
    assert state(number) is ProcessState.BROKEN


def test_restarting_with_other_arguments_or_a_result(person: Person, world: dict[str, Any]) -> None:
    number = world["hostile"]
    question = person.get(f"/processes/{number}/restart?from=3")
    seen = question.form("/restart").send(args='["o-9", 20]', copy="yes")
    assert f"is the copy of {number}: 4 tasks again." in seen.text
    found = showing.show(int(seen.path.rpartition("/")[2]))
    assert found.tasks[2].args == ["o-9", 20]
    seen = question.form("/restart").send(result='"paid by hand"')
    assert f"Process {number} goes on: 3 tasks again." in seen.text
    assert showing.show(number).tasks[2].value == "paid by hand"
    whole = person.get(f"/processes/{number}/restart").form("/restart").send(args="[]")
    assert whole.status == 400
    assert "are for one task" in whole.text


def _only_what_is_meant(person: Person, number: int) -> None:
    """Of what is not repeatable."""
    configure("reserve", {"repeatable": False})
    question = person.get(f"/processes/{number}/restart")
    assert "Not repeatable, and called already: reserve (task 2)" in question.text
    refused = question.form("/restart").send(reason="again")
    assert refused.status == 400
    assert "not repeatable" in refused.text
    assert refused.form("/restart").fields["reason"] == "again"
    assert state(number) is ProcessState.BROKEN
    configure("reserve", {"repeatable": True})
