"""Arrays that go to the server as text arrive as what they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.engine import Engine

from app.arrays import Array
from app.prepared import Prepared

WORDS = ["", " ", "NULL", "null", "a,b", "{x}", 'say "so"', "back\\slash", "it's", "%s", "two\nlines", "žluť", None]
MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(2026, 7, 26, 12, 0, 0, 1, timezone(timedelta(hours=5, minutes=30))),
    datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    None,
]
CASES: list[tuple[Any, list[Any]]] = [
    (sa.BigInteger(), [0, -1, 2**63 - 1, -(2**63), None]),
    (sa.SmallInteger(), [1, None, -5]),
    (sa.Double(), [0.1, 1e300, 5e-324, -0.0, float("inf"), 1 / 3, None]),
    (sa.Boolean(), [True, False, None]),
    (sa.Text(), WORDS),
    (sa.Text(), []),
    (TIMESTAMP(timezone=True), MOMENTS),
    (sa.Uuid(), [UUID(int=0), UUID("6f2d5c1e-0b7a-4c55-9d0e-2b1f3a4c5d6e"), None]),
]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=repr)
def test_they_arrive_as_they_were(kind: Any, values: list[Any], engine: Engine) -> None:
    with engine.begin() as connection:
        cast = sa.select(sa.cast(values, Array(kind)))
        assert connection.execute(cast).scalar_one() == values
        rows = (
            sa.func.unnest(sa.bindparam("p_values", type_=Array(kind)))
            .table_valued(sa.column("value", kind))
            .render_derived()
        )
        asked = sa.select(rows.c.value)
        assert list(connection.execute(asked, {"p_values": values}).scalars()) == values
        prepared = Prepared("arrays", asked)
        assert list(prepared.execute(connection, {"p_values": values}).scalars()) == values
        connection.exec_driver_sql("DEALLOCATE ALL")


def test_nothing_is_no_array(engine: Engine) -> None:
    with engine.connect() as connection:
        assert connection.execute(sa.select(sa.cast(None, Array(sa.Text)))).scalar_one() is None


def test_what_has_a_form_of_its_own_is_left_to_the_driver(engine: Engine) -> None:
    with engine.connect() as connection:
        found = connection.execute(sa.select(sa.cast([{"a": 'x"y'}], Array(sa.JSON)))).scalar_one()
        assert found == [{"a": 'x"y'}]
