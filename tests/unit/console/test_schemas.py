"""Values against the schemas that OpenAPI publishes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.console import reading, schemas
from app.console.schemas import (
    ANY,
    FLAG,
    INTEGER,
    LIST,
    MOMENT,
    NAME,
    NUMBER,
    TIME,
    WORDS,
    Schema,
    listing,
    mapping,
    optional,
    record,
    word,
)
from app.errors import BadRequest
from app.jobs import stored

COUNT = {**INTEGER, "minimum": 1, "maximum": 2**63 - 1}
EITHER = {**record(a=ANY, b=ANY), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
WHOLE = record("n", n=COUNT, each=listing(record(at=TIME), 2), of=mapping(NAME, INTEGER, 2), rest=LIST)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (ANY, None),
        (optional(INTEGER), None),
        (NUMBER, 1),
        (NUMBER, 0.5),
        (FLAG, False),
        (COUNT, 2**63 - 1),
        (MOMENT, "2026-07-01t00:00:00.123456789z"),
        (MOMENT, "2026-07-01 00:00:00-23:59"),
        (TIME, "500ms"),
        (TIME, "0.5w"),
        (WORDS, "\n"),
        (word("a", "b"), "b"),
        (EITHER, {"a": None}),
        (WHOLE, {"n": 1, "each": [{"at": "1h"}, {}], "of": {"x": -1}, "rest": [1.0, {"$": None}]}),
    ],
)
def test_what_is_taken(schema: Schema, value: Any) -> None:
    assert schemas.check(schema, value) == value


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        (INTEGER, True, "a whole number, not true or false"),
        (NUMBER, "1", "a number, not '1'"),
        (INTEGER, 1.5, "a whole number, not a number"),
        (COUNT, 1e300, "between 1 and 9223372036854775807"),
        (COUNT, 0.0, "between 1 and"),
        (NAME, "a\n", "has a control character"),
        (MOMENT, "2026-07-01T00:00:00Z\n", "no time"),
        (MOMENT, "2026-07-01T00:00:60Z", "no time"),
        (MOMENT, "0000-01-01T00:00:00Z", "no time"),
        (MOMENT, "٢٠٢٦-07-01T00:00:00Z", "no time"),
        (MOMENT, "2026-07-01T00:00:00", "write 2026-07-01T00:00:00Z for UTC"),
        (TIME, "1 h", "or a span, such as 30min"),
        (TIME, "-1h", "or a span, such as 30min"),
        (word("ACTIVE", "BROKEN"), "ACTIV", "did you mean ACTIVE?"),
        (EITHER, {}, "either a or b"),
        (EITHER, {"a": 1, "b": 1}, "either a or b"),
        (WHOLE, {"n": 1, "each": [{}, {}, {}]}, "each has 3 items: give 0 to 2"),
        (WHOLE, {"n": 1, "each": [{"at": 1}]}, "each[0].at=a whole number (1) is none"),
        (WHOLE, {"n": 1, "of": {"": 1}}, "a name in of is empty"),
        (WHOLE, {"n": 1, "of": {"x": "1"}}, "of['x'] must be a whole number"),
    ],
)
def test_what_is_refused(schema: Schema, value: Any, told: str) -> None:
    with pytest.raises(BadRequest) as caught:
        schemas.check(schema, value)
    assert told in str(caught.value)


def test_whole_numbers_are_made_whole_where_they_are_asked_for() -> None:
    found = schemas.check(WHOLE, {"n": 2.0, "of": {"x": 3.0}, "rest": [1.0]})
    assert json.dumps(found) == '{"n": 2, "of": {"x": 3}, "rest": [1.0]}'


def test_times() -> None:
    assert schemas.time_of("eta", "2026-07-01t02:00:00+02:00") == datetime(2026, 7, 1, tzinfo=UTC)
    assert schemas.time_of("eta", "90s") == timedelta(seconds=90)
    with pytest.raises(BadRequest, match="eta"):
        schemas.time_of("eta", "999999999w")


def test_queries() -> None:
    schema = record(limit=COUNT, flag=FLAG, name=NAME)
    assert reading.query(schema, [("limit", "7"), ("flag", "true"), ("name", "7")]) == {
        "limit": 7,
        "flag": True,
        "name": "7",
    }
    for given in ([("limit", "٧")], [("limit", "1.0")], [("limit", "")], [("flag", "1")], [("name", "")], [("x", "1")]):
        with pytest.raises(BadRequest):
            reading.query(schema, given)


def test_json_of_others() -> None:
    assert stored.read('{"a": [1, 0.5]}') == {"a": [1, 0.5]}
    for text in ("1e999", "9" * 5000, "[" * 100_000, "[" * 101 + "]" * 101, '{"a": {"\\uD800": 1}}', '"\\udfff"'):
        assert stored.read(text) == {"$text": text}
