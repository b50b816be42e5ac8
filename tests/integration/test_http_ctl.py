"""The control table over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy.engine import Engine

from tests.kit import console
from tests.kit.console import Caller, Said
from triggers import ctl

ADVANCE, JULY = "/api/v1/ctl/advance", "2026-07-01T00:00:00+00:00"


@pytest.fixture
def url(engine: Engine) -> Iterator[str]:
    with console.serving() as found:
        yield found


@pytest.fixture
def caller(url: str) -> Caller:
    return Caller(url, console.token("loader", "producer"))


def advance(caller: Caller, entity: str, *, dry_run: bool | None = None, **values: str) -> Said:
    body: dict[str, Any] = {"entity": entity, "values": values}
    return caller.post(ADVANCE, body if dry_run is None else body | {"dry_run": dry_run})


def read(caller: Caller, what: str = "", **query: Any) -> Said:
    return caller.get(f"/api/v1/ctl{what}?{urlencode(query)}")


def test_several_parameters_move_forward_together(caller: Caller) -> None:  # T15
    said = advance(caller, "dds.orders", loaded_to=JULY, checked_to="2026-06-30T03:00:00.25+03:00")
    assert said.status == 200
    assert said.data["would_start"] == []
    moved = {each["parameter"]: (each["value"], each["moved"]) for each in said.data["values"]}
    assert moved == {"loaded_to": (JULY, True), "checked_to": ("2026-06-30T00:00:00.250000+00:00", True)}
    # Again: nothing moves, and nothing is wrong.
    again = advance(caller, "dds.orders", loaded_to="2026-07-01T00:00:00Z")
    assert (again.status, again.data["values"][0]["moved"]) == (200, False)
    # One of them lies behind: none moves.
    said = advance(caller, "dds.orders", loaded_to="2026-06-30T00:00:00Z", checked_to="2026-07-01T00:00:00Z")
    assert (said.status, said.error[0]) == (409, "moves_back")
    assert "dds.orders.loaded_to" in said.error[1]
    assert ctl.get("dds.orders", "checked_to") == datetime(2026, 6, 30, 0, 0, 0, 250_000, tzinfo=UTC)


def test_a_dry_run_changes_nothing(caller: Caller) -> None:
    said = advance(caller, "dds.orders", dry_run=True, loaded_to=JULY)
    assert (said.status, said.data["dry_run"], said.data["values"][0]["moved"]) == (200, True, True)
    assert ctl.get("dds.orders", "loaded_to") is None


def test_reading_by_page(caller: Caller) -> None:
    for entity in ("a", "a/b?c=d", "b é"):
        assert advance(caller, entity, p=JULY, q=JULY).status == 200
    found: list[tuple[str, str]] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        said = read(caller, **query)
        assert said.status == 200
        found += [(each["entity"], each["parameter"]) for each in said.data["values"]]
        if (then := said.data["next"]) is None:
            break
        query = {"limit": 2, **then}
    assert sorted(found) == sorted((entity, each) for entity in ("a", "a/b?c=d", "b é") for each in "pq")
    assert len(found) == len(set(found))
    assert {each["entity"] for each in read(caller, entity="a*").data["values"]} == {"a", "a/b?c=d"}
    value = read(caller, "/value", entity="a/b?c=d", parameter="p")
    assert (value.status, value.data["value"], value.data["version"]) == (200, JULY, 1)
    assert read(caller, "/value", entity="a", parameter="r").error[0] == "not_found"


def test_history_by_page(caller: Caller) -> None:
    for day in ("01", "02", "03"):
        assert advance(caller, "e", p=f"2026-07-{day}T00:00:00Z").status == 200
    first = read(caller, "/history", entity="e", parameter="p", limit=2).data
    assert [each["value"][:10] for each in first["history"]] == ["2026-07-03", "2026-07-02"]
    rest = read(caller, "/history", entity="e", parameter="p", limit=2, before_id=first["before_id"]).data
    assert [(each["value"][:10], each["previous"]) for each in rest["history"]] == [("2026-07-01", None)]
    assert rest["before_id"] is None


def test_scopes(url: str, caller: Caller) -> None:
    assert advance(caller, "mart.orders", p=JULY).status == 200
    narrow = Caller(url, console.token("narrow", "producer", "dds.*"))
    assert advance(narrow, "dds.orders", p=JULY).status == 200
    assert advance(narrow, "mart.orders", p="2026-08-01T00:00:00Z").error[0] == "denied"
    assert read(narrow, "/value", entity="dds.orders", parameter="p").status == 200
    assert read(narrow, entity="dds.*").data["next"] is None
    for what, query in (
        ("", {}),
        ("", {"entity": "*"}),
        ("", {"entity": "d*"}),
        ("/value", {"entity": "mart.orders", "parameter": "p"}),
        ("/history", {"entity": "mart.orders", "parameter": "p"}),
    ):
        assert read(narrow, what, **query).error[0] == "denied"
    viewer = Caller(url, console.token("viewer", "viewer"))
    assert advance(viewer, "dds.orders", p=JULY).error[0] == "denied"
    assert len(read(viewer).data["values"]) == 2
    assert read(Caller(url, console.token("actor", "actor"))).error[0] == "denied"


TIMES: list[tuple[str, int, str]] = [
    ("2026-07-01T00:00:00", 400, "has no time zone: write 2026-07-01T00:00:00Z for UTC"),
    ("2026-07-01", 400, "is no time"),
    ("now", 400, "is no time"),
    ("2026-07-01T00:00:00+25:00", 400, "is no time"),
    ("2026-07-01T00:00:00 Europe/Berlin", 400, "is no time"),
    ("2026-02-30T00:00:00Z", 400, "is no time"),
    ("2026-07-01T00:00:00Z\n", 400, "is no time"),
    ("0001-01-01T00:00:00+14:00", 422, "lies before the year 2"),
    ("9999-12-31T23:59:59-23:59", 422, "lies after 9998-12-31"),
    ("2999-01-01T00:00:00Z", 422, "too far"),
]


def test_times_that_cannot_be(caller: Caller) -> None:
    for text, status, told in TIMES:
        said = advance(caller, "dds.orders", loaded_to=text)
        assert said.status == status, said
        assert ctl.get("dds.orders", "loaded_to") is None
        if told != "too far":
            assert told in said.error[1]
        else:
            assert said.error[0] == "too_far_ahead"


BODIES: list[tuple[Any, str]] = [
    ({"entity": "e", "values": {}}, "values has 0 fields: give 1 to 100"),
    ({"entity": "e", "values": {str(each): JULY for each in range(101)}}, "values has 101 fields"),
    ({"entity": "", "values": {"p": JULY}}, "entity is empty"),
    ({"entity": "e" * 201, "values": {"p": JULY}}, "201 characters"),
    ({"entity": "a\0b", "values": {"p": JULY}}, "has a control character"),
    ({"entity": "e", "values": {"a\0b": JULY}}, "a name in values"),
    ({"entity": "e", "values": {"p": 7}}, "values['p'] must be text"),
    ({"entity": "e", "values": {"p": JULY}, "dry_run": 1}, "dry_run must be true or false"),
    ({"entity": "e", "value": {"p": JULY}}, "has no field 'value': did you mean values?"),
]


def test_bodies_that_cannot_be(caller: Caller) -> None:
    for body, told in BODIES:
        said = caller.post(ADVANCE, body)
        assert (said.status, said.error[0]) == (400, "bad_request"), said
        assert told in said.error[1]
        assert ctl.values() == []


QUERIES: list[tuple[str, str]] = [
    ("limit=0", "limit must lie between 1 and 1000"),
    ("limit=x", "limit must be a whole number"),
    ("limit=99999999999999999999999999999999999999", "limit must be a whole number"),
    ("limit=1&limit=2", "more than once"),
    ("entity=%00", "has a control character"),
    ("entities=a", "the query has no field 'entities': did you mean entity?"),
    ("after_entity=a", "belong together"),
]


def test_queries_that_cannot_be(caller: Caller) -> None:
    for query, told in QUERIES:
        said = caller.get(f"/api/v1/ctl?{query}")
        assert said.status == (422 if "together" in told else 400), said
        assert told in said.error[1]
