"""Processes over HTTP: started once, searched for, shown; to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from app.db import transaction
from processes import templates
from tests.kit import console, outside_world
from tests.kit.console import Caller
from tests.kit.outside_world import asking

PROCESSES, SEARCH = "/api/v1/processes", "/api/v1/processes/search"


@pytest.fixture
def url(engine: Engine) -> Iterator[str]:
    outside_world.make_known()
    with console.serving() as found:
        yield found


@pytest.fixture
def caller(url: str) -> Caller:
    return Caller(url, console.token("shop", "producer"))


def found(caller: Caller, **words: Any) -> list[int]:
    said = caller.post(SEARCH, words)
    assert said.status == 200, said
    return [each["id"] for each in said.data["processes"]]


def started(caller: Caller, **words: Any) -> int:
    said = caller.post(PROCESSES, {"name": "ask_outside", **words})
    assert said.status == 200, said
    return int(said.data["process_id"])


def test_a_start_that_is_sent_again(caller: Caller) -> None:  # P2
    words = caller.headers() | {"Content-Type": "application/json", "Idempotency-Key": "order 7"}
    ids = {
        caller.raw("POST", PROCESSES, b'{"name": "ask_outside", "args": [7]}', words).data["process_id"] for _ in "ab"
    }
    assert ids == {started(caller, idempotency_key="order 7")}
    said = caller.raw("POST", PROCESSES, b'{"name": "ask_outside", "idempotency_key": "order 8"}', words)
    assert (said.status, said.error) == (
        400,
        ("bad_request", "idempotency_key and the header Idempotency-Key differ: give one of them"),
    )


def test_searching(caller: Caller) -> None:
    waits = asking("x")
    ids = [started(caller, args=[n], custom_id=f"o-{n}", attributes={"shop": n % 2, "n": n}) for n in range(5)]
    assert found(caller) == [*reversed(ids), waits]
    assert found(caller, states=["ACTIVE"], name="ask_outside", actor="answer_outside") == [waits]
    assert found(caller, custom_id="o-3") == [ids[3]]
    assert found(caller, custom_id_prefix="o-", attributes={"shop": 1}) == [ids[3], ids[1]]
    assert found(caller, since="1h", until="2999-01-01t00:00:00z", limit=1) == [ids[4]]
    assert found(caller, since="2000-01-01T00:00:00+23:59", ended_until="2h") == []
    first = caller.post(SEARCH, {"limit": 4}).data
    rest = caller.post(SEARCH, {"limit": 4, "before_id": first["before_id"]}).data
    assert [each["id"] for each in first["processes"] + rest["processes"]] == [*reversed(ids), waits]
    assert rest["before_id"] is None
    row = rest["processes"][-1]
    assert (row["state"], row["unfinished"], row["broken"], row["error"]) == ("ACTIVE", 3, 0, None)


def test_templates(caller: Caller) -> None:
    ids = [started(caller, custom_id=f"o-{number}") for number in range(2)]
    with transaction() as session:
        templates.save(session, "by-id", {"name": "ask_outside", "custom_id": "o-{number}"})
    (listed,) = caller.get("/api/v1/templates").data["templates"]
    assert (listed["name"], listed["parameters"]) == ("by-id", ["number"])
    assert found(caller, template="by-id", parameters={"number": "1"}) == [ids[1]]
    assert found(caller, template="by-id", parameters={"number": "1"}, custom_id="o-0") == [ids[0]]
    for body, status, told in (
        ({"template": "by-id"}, 422, "needs number"),
        ({"template": "by-ib"}, 404, "did you mean by-id?"),
        ({"parameters": {"number": "1"}}, 422, "belong to a template"),
    ):
        said = caller.post(SEARCH, body)
        assert (said.status, told in said.error[1]) == (status, True), said


def test_scopes_are_of_deciders(url: str) -> None:
    root, narrow = (
        Caller(url, console.token("root", "operator")),
        Caller(url, console.token("narrow", "producer", "ask_outside", "actor.ask_another")),
    )
    mine = started(narrow)
    other = int(root.post(PROCESSES, {"name": "ask_another"}).data["process_id"])
    assert narrow.post(PROCESSES, {"name": "ask_another"}).error[0] == "denied"
    assert narrow.get(f"{PROCESSES}/{mine}").status == 200
    assert narrow.get(f"{PROCESSES}/{other}").error[0] == "denied"
    assert found(narrow, name="ask_outside") == [mine]
    # Also by the name of the queue of a decider, which is its name in other words.
    for body in ({}, {"name": "ask_another"}, {"name": "actor.ask_another"}, {"name": "nothing"}):
        assert narrow.post(SEARCH, body).error[0] == "denied", body
    with transaction() as session:
        templates.save(session, "others", {"name": "ask_another"})
    assert narrow.post(SEARCH, {"template": "others"}).error[0] == "denied"
    assert narrow.get("/api/v1/templates").error[0] == "denied"
    assert found(narrow, template="others", name="ask_outside") == [mine]
    assert Caller(url, console.token("actor", "actor")).post(SEARCH, {}).error[0] == "denied"


WRONG: list[tuple[Any, int, str]] = [
    ({"states": ["GONE"]}, 400, "states[0]='GONE' is none of REGISTERED"),
    ({"states": "ACTIVE"}, 400, "states must be a list"),
    ({"name": "ask_outsid"}, 404, "did you mean ask_outside?"),
    ({"actor": "nobody"}, 404, "there is no actor"),
    ({"limit": 201}, 400, "limit must lie between 1 and 200"),
    ({"before_id": 2**63}, 400, "before_id must lie between"),
    ({"since": "2026-07-01"}, 400, "is none of what it may be"),
    ({"since": "999999999w"}, 422, "since"),
    ({"text": "'"}, 422, "has no word to search for"),
    ({"fingerprint": "x"}, 400, "16 hexadecimal digits"),
    ({"attributes": {str(each): 1 for each in range(21)}}, 400, "attributes has 21 fields"),
    ({"attributes": {"a": "\0"}}, 422, "must be text without NUL"),
    ({"custom_id": "c" * 501}, 400, "501 characters"),
    ({"query": "x"}, 400, "has no field 'query'"),
]


def test_tasks_are_shown_in_pages(caller: Caller) -> None:
    path = f"{PROCESSES}/{asking('x')}"
    whole = caller.get(path).data
    assert (len(whole["tasks"]), whole["after"]) == (3, None)
    first, rest = caller.get(f"{path}?limit=2").data, caller.get(f"{path}?limit=2&after=2").data
    assert (first["tasks"], first["after"]) == (whole["tasks"][:2], 2)
    assert (rest["tasks"], rest["after"]) == (whole["tasks"][2:], None)
    assert caller.get(f"{path}?limit=1001").status == 400


def test_searches_that_cannot_be(caller: Caller) -> None:
    for body, status, told in WRONG:
        said = caller.post(SEARCH, body)
        assert (said.status, told in said.error[1]) == (status, True), said
