"""Whatever a state is, it comes back as it was stored (S6)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from stages.definition import Definition
from stages.state import Stored, pack, unpack
from tests.kit.messages import NUMBER, TEXT, message
from tests.kit.stages_memory import declare, nothing_declared, parcels

FULL = message("shop.Progress", step=(1, TEXT), tries=(2, NUMBER), note=(16, TEXT))
PART = message("shop.Progress", tries=(2, NUMBER))


class Stop(BaseModel):
    city: str
    at: datetime | None = None
    day: date | None = None


class Parked(BaseModel):
    kind: Literal["parked"] = "parked"
    where: Stop


class Moving(BaseModel):
    kind: Literal["moving"] = "moving"
    tracks: tuple[int, ...] = ()


class Route(BaseModel):
    model_config = ConfigDict(extra="allow")

    stops: list[Stop] = []
    by_name: dict[str, list[Stop]] = {}
    now: Parked | Moving | None = None
    price: Decimal = Decimal(0)
    weight: float = 0
    done: bool = False


_text = st.text(max_size=20)
_stops = st.builds(
    Stop,
    city=_text,
    at=st.none() | st.datetimes(timezones=st.just(UTC)),
    day=st.none() | st.dates(),
)
_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_routes = st.builds(
    Route,
    stops=st.lists(_stops, max_size=3),
    by_name=st.dictionaries(_text, st.lists(_stops, max_size=2), max_size=2),
    now=st.none() | st.builds(Parked, where=_stops) | st.builds(Moving, tracks=st.lists(st.integers(0, 9)).map(tuple)),
    price=st.decimals(allow_nan=False, allow_infinity=False, places=2),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    done=st.booleans(),
    of_another_release=_json,
)
_urls = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)


def stage(form: Any) -> Definition:
    with nothing_declared():
        return declare(parcels(), state=form)


ROUTES, ANYS, FULLS, PARTS = stage(Route), stage(AnyMessage), stage(FULL), stage(PART)


@given(_routes)
def test_models_come_back(route: Route) -> None:
    stored = Stored(*pack(ROUTES, "p-1", route), 1)
    assert unpack(ROUTES, stored) == route
    assert pack(ROUTES, "p-1", unpack(ROUTES, stored)) == (stored.type_url, stored.value)


@given(_urls, st.binary(max_size=200))
def test_any_comes_back_byte_for_byte(url: str, value: bytes) -> None:
    found = unpack(ANYS, Stored(url, value, 1))
    assert isinstance(found, AnyMessage)
    assert pack(ANYS, "p-1", found) == (url, value)
    # A stage may hand on a copy too.
    assert pack(ANYS, "p-1", AnyMessage.FromString(found.SerializeToString())) == (url, value)


@given(_text, st.integers(0, 2**62), _text, st.integers(0, 2**62))
def test_a_message_survives_code_that_knows_a_part_of_it(step: str, tries: int, note: str, now: int) -> None:
    known: Any = unpack(PARTS, Stored(*pack(FULLS, "p-1", FULL(step=step, tries=tries, note=note)), 1))
    assert known.tries == tries
    known.tries = now
    assert unpack(FULLS, Stored(*pack(PARTS, "p-1", known), 2)) == FULL(step=step, tries=now, note=note)
