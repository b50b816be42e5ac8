"""States that are pydantic models, and the raw `Any`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import StringValue
from pydantic import BaseModel, SecretStr, computed_field, field_validator

from app.errors import BadOutcome, BadRequest
from stages import JsonState, Untouched, registration, state_text
from stages.state import STATE_LIMIT, Stored, pack, unpack
from stages.testing import World, visit
from tests.kit.process import ROOT
from tests.kit.stages_memory import Parcel, declare, nothing_declared, parcels

URL = "type.googleapis.com/tidemill.v1.JsonState"


class Stop(BaseModel):
    city: str
    at: datetime


class Route(BaseModel):
    stops: list[Stop] = []
    weight: float = 0

    @computed_field
    def length(self) -> int:
        return len(self.stops)


class Heavy(Route):
    more: int = 1


ROUTE = Route(stops=[Stop(city="Łódź", at=datetime(2026, 7, 1, 12, tzinfo=UTC))], weight=1.5)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with nothing_declared():
        yield


def read(form: Any, stored: Stored) -> Any:
    return unpack(declare(parcels(), state=form), stored)


def json_of(text: str | bytes, url: str = URL) -> Stored:
    value = text if isinstance(text, bytes) else JsonState(json=text).SerializeToString()
    return Stored(url, value, 1)


def test_a_model_is_kept_as_json() -> None:
    # S6
    url, value = pack(declare(parcels(), state=Route), "p-1", ROUTE)
    assert url == URL
    kept = JsonState.FromString(value)
    assert kept.model == "Route"
    assert kept.json == '{"stops":[{"city":"Łódź","at":"2026-07-01T12:00:00Z"}],"weight":1.5}'
    assert read(Route, Stored(url, value, 1)) == ROUTE


def test_json_of_others_is_read_however_it_is_written() -> None:
    assert read(Route, json_of('\n{ "weight": 2, "stops" : [] }', "example.com/tidemill.v1.JsonState")).weight == 2


UNREADABLE = [
    ('{"weight": "heavy", "stops": [{"city": 1}]}', r"Route: stops.0.city: Input should be .*; stops.0.at: Field requ"),
    ("", "Route: it: Invalid JSON"),
    ("[]", "Route: it: Input should be an object"),
    (b"\xff", "tidemill.v1.JsonState: Error parsing"),
]


@pytest.mark.parametrize(("text", "said"), UNREADABLE)
def test_what_the_model_refuses_is_an_error_of_the_visit(text: str | bytes, said: str) -> None:
    with pytest.raises(BadOutcome, match=rf"^stage \S+weigh: what is stored cannot be read as {said}"):
        read(Route, json_of(text))


def test_errors_are_short_and_tell_no_values() -> None:
    class Wide(BaseModel):
        numbers: dict[str, int]

    numbers = ", ".join(f'"{n}{"k" * 500}": "secret{n}"' for n in range(9))
    with pytest.raises(BadOutcome) as error:
        read(Wide, json_of(f'{{"numbers": {{{numbers}}}}}'))
    assert "secret" not in str(error.value)
    assert str(error.value).endswith("; and 4 more")
    assert len(str(error.value)) < 1200


class Hashed(BaseModel):
    word: str

    @field_validator("word")
    @classmethod
    def _short(cls, word: str) -> str:
        if len(word) > 3:
            raise ValueError("it is too long")
        return word * 2


REFUSED = [
    (Route(weight=float("nan")), "weight: Input should be a valid number"),
    (Hashed(word="abc"), "word: Value error, it is too long"),
    (Route.model_construct(stops=[Stop.model_construct(city="x" * 9)]), "stops.0.at: Field required"),
]


@pytest.mark.parametrize(("state", "said"), REFUSED, ids=lambda each: str(each)[:10])
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_what_could_not_be_read_again_is_not_stored(state: BaseModel, said: str) -> None:
    with pytest.raises(BadOutcome, match=rf"of parcel 'p-1': its state cannot be stored, as its JSON .*: {said}"):
        pack(declare(parcels(), state=type(state)), "p-1", state)


@pytest.mark.parametrize("state", [Heavy(), {"weight": 1}, Stop, StringValue()])
def test_a_state_of_another_class_is_refused(state: object) -> None:
    # Of a subclass too: the next visit would not have what it has more.
    with pytest.raises(BadOutcome, match=r"of parcel 'p-1': state=.* must be a Route, None to remove it, or left out"):
        pack(declare(parcels(), state=Route), "p-1", state)


def test_models_have_the_same_limit() -> None:
    class Text(BaseModel):
        text: str

    with pytest.raises(BadOutcome, match=r"its state takes 10485\d\d bytes, more than 1048576: store the large part"):
        pack(declare(parcels(), state=Text), "p-1", Text(text="x" * STATE_LIMIT))


@pytest.mark.parametrize("url", ["", "a\0b", "x" * 1001])
def test_an_any_without_a_type_is_refused(url: str) -> None:
    with pytest.raises(BadOutcome, match=r"its state is an Any with type_url=.*: fill it with Pack\(message\)"):
        pack(declare(parcels(), state=AnyMessage), "p-1", AnyMessage(type_url=url, value=b"x"))


def test_a_message_is_no_any() -> None:
    with pytest.raises(BadOutcome, match=r"must be a google.protobuf.Any, None to remove it"):
        pack(declare(parcels(), state=AnyMessage), "p-1", StringValue())


@pytest.mark.parametrize("state", [BaseModel, Message, ROUTE, dict, SecretStr, "Route", list[int]])
def test_what_is_no_class_of_a_state_is_refused(state: Any) -> None:
    with pytest.raises(BadRequest, match="must be a class that protoc has made of a message, a class of a pydantic mo"):
        declare(parcels(), state=state)
    assert registration.declared == {}


NO_PYDANTIC = """
import sys
import tidemill, app.cli, app.celery
from google.protobuf.wrappers_pb2 import StringValue
from stages.forms import form_of
assert form_of(StringValue) and form_of(dict) is None
assert not [each for each in sys.modules if each.startswith("pydantic")]
"""


def test_pydantic_is_imported_only_by_who_uses_it() -> None:
    run = subprocess.run([sys.executable, "-c", NO_PYDANTIC], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


class Counted(BaseModel):
    visits: int = 0


def test_both_work_without_a_database() -> None:
    def counts(_parcel: Parcel, state: Counted | None) -> Untouched:
        visits = 0 if state is None else state.visits
        return Untouched(state=Counted(visits=visits + 1), timer=timedelta(days=1))

    kind = parcels()
    definition = declare(kind, wants=True, does=counts, state=Counted)
    raw = declare(kind, "raw", wants=True, does=lambda _parcel, state: Untouched(state=state), state=AnyMessage)
    own, other = type(definition.stage), type(raw.stage)
    assert visit(own, Parcel("p-1")).state == Counted(visits=1)
    assert visit(own, Parcel("p-1"), Counted(visits=7)).state == Counted(visits=8)
    packed = AnyMessage(type_url="x/y.Z", value=b"\xff")
    assert visit(other, Parcel("p-1"), packed).state == packed
    world, parcel = World(), Parcel("p-1")
    world.add(parcel)
    world.advance("2d")
    assert world.state_of(parcel, own) == Counted(visits=3)
    assert world.state_of(parcel, other) is None


TEXTS = [
    (json_of('{"a":\n [1,  "b  c"]}'), '{"a": [1, "b  c"]}', {"a": [1, "b  c"]}),
    (json_of('{"city": "Łódź"}'), '{"city": "Łódź"}', {"city": "Łódź"}),
    (json_of("{no\x1b json"), "'{no\\x1b json'", None),
    (json_of("[" * 100_000), None, None),
    (json_of(""), "''", None),
    (json_of(b"\xff\x01"), "0xff01", None),
    (Stored("x/shop.Unknown", b"\x08\x01", 1), "0x0801", None),
    (Stored("x/shop.Unknown", b"\x08" * 33, 1), f"0x{'08' * 32}… (33 bytes)", None),
    (Stored("x/shop.Unknown", b"", 1), "", None),
]


@pytest.mark.parametrize(("stored", "text", "data"), TEXTS, ids=range(len(TEXTS)))
def test_it_is_shown_as_what_it_is(stored: Stored, text: str | None, data: object) -> None:
    shown = state_text.text_of(stored)
    assert shown.startswith("'[[[") if text is None else shown == text
    assert len(shown) < 11_000
    assert state_text.data_of(stored) == data
