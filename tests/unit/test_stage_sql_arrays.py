"""Arrays of Postgres as text."""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from psycopg2 import Binary

from stages.sql_arrays import NoText, array, nested, text_of


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("it's", "it's"),
        (Colour.RED, "red"),
        (Size.BIG, "3"),
        (True, "True"),
        (-7, "-7"),
        (1e300, "1e+300"),
        (Decimal("1.50"), "1.50"),
        (b"\x00\xff", "\\x00ff"),
        (Binary(b"\x01"), "\\x01"),
        (datetime(2024, 2, 29, tzinfo=UTC), "2024-02-29T00:00:00+00:00"),
        (timedelta(seconds=-1), "-1 days 86399 seconds 0 microseconds"),
    ],
)
def test_values_as_the_server_reads_them(value: Any, text: str | None) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize("value", [object(), {}, [1], 1j])
def test_what_only_the_driver_knows_has_no_text(value: Any) -> None:
    with pytest.raises(NoText):
        text_of(value)
    with pytest.raises(NoText):
        nested(value if value != [1] else [{}])


def test_elements_are_quoted() -> None:
    assert array([]) == "{}"
    assert array(["a", None, "", "NULL", 'say "\\"']) == '{"a",NULL,"","NULL","say \\"\\\\\\""}'
    assert nested([[1, None], ("a", True)]) == '{{"1",NULL},{"a","True"}}'
    assert nested(None) is None
