"""The forms that a stage's state may have, each with how it becomes the parts of a protobuf `Any` and back (S6). Pure.

    a protobuf message    as `Any.Pack` makes it
    a pydantic model      a `tidemill.v1.JsonState`; pydantic is not imported here: who declares a model has it
    `Any` itself          whatever is stored, byte for byte, of types too that nobody here knows

What is written can be read again: a state that its own model would refuse is not stored.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, EncodeError, Message

from app.errors import BadOutcome
from app.proto.tidemill.v1.stage_pb2 import JsonState

_URL = "type.googleapis.com/"
JSON_STATE = str(JsonState.DESCRIPTOR.full_name)
_JSON_URL = _URL + JSON_STATE
#: In characters, of the URL in an `Any`.
_URL_LIMIT = 1000
#: Of the problems that pydantic finds, the first few are told.
_PROBLEMS = 5


class Model(Protocol):
    """What is asked of a pydantic model."""

    @classmethod
    def model_validate_json(
        cls, json_data: str | bytes | bytearray, *, by_alias: bool | None = None, by_name: bool | None = None
    ) -> Self: ...

    def model_dump_json(self, *, by_alias: bool | None = None, round_trip: bool = False) -> str: ...


#: As a stage is given it, and returns it.
State = Message | Model


class Form(Protocol):
    @property
    def name(self) -> str:
        """What a state must be, for people."""

    def read(self, type_url: str, value: bytes) -> State:
        """One of its own for each call. `BadOutcome`: it cannot be read so."""

    def write(self, state: State) -> tuple[str, bytes]:
        """The URL of its type and its bytes. `BadOutcome`: it cannot be stored."""

    def fits(self, state: object) -> bool: ...


@dataclass(frozen=True, slots=True)
class MessageForm:
    cls: type[Message]
    name: str
    url: str

    def read(self, type_url: str, value: bytes) -> Message:
        if type_url != self.url and type_url.rpartition("/")[2] != self.name:
            raise _another(self.name, type_url)
        try:
            return self.cls.FromString(value)
        except DecodeError as error:
            raise BadOutcome(f"what is stored cannot be read as {self.name}: {error}") from None

    def write(self, state: State) -> tuple[str, bytes]:
        try:
            return self.url, cast(Message, state).SerializeToString()
        except EncodeError as error:
            raise BadOutcome(f"its state cannot be stored: {error}") from None

    def fits(self, state: object) -> bool:
        return isinstance(state, self.cls)


@dataclass(frozen=True, slots=True)
class ModelForm:
    cls: type[Model]
    name: str

    def read(self, type_url: str, value: bytes) -> Model:
        if type_url != _JSON_URL and type_url.rpartition("/")[2] != JSON_STATE:
            raise _another(f"{self.name} (kept as {JSON_STATE})", type_url)
        try:
            return self._made(JsonState.FromString(value).json)
        except DecodeError as error:
            raise BadOutcome(f"what is stored cannot be read as {JSON_STATE}: {error}") from None
        except ValueError as error:
            raise BadOutcome(f"what is stored cannot be read as {self.name}: {_problems(error)}") from None

    def write(self, state: State) -> tuple[str, bytes]:
        try:
            text = cast(Model, state).model_dump_json(by_alias=False, round_trip=True)
            self._made(text)
        except ValueError as error:
            raise BadOutcome(
                f"its state cannot be stored, as its JSON would not make a {self.name} again: {_problems(error)}"
            ) from None
        return _JSON_URL, JsonState(model=self.name, json=text).SerializeToString()

    def fits(self, state: object) -> bool:
        # What a subclass has more would be lost.
        return type(state) is self.cls

    def _made(self, text: str) -> Model:
        # Aliases may change; the names are what is stored.
        return self.cls.model_validate_json(text, by_alias=True, by_name=True)


@dataclass(frozen=True, slots=True)
class AnyForm:
    name: str = str(AnyMessage.DESCRIPTOR.full_name)

    def read(self, type_url: str, value: bytes) -> Message:
        return AnyMessage(type_url=type_url, value=value)

    def write(self, state: State) -> tuple[str, bytes]:
        packed = cast(AnyMessage, state)
        url = packed.type_url
        # Postgres has no text with a zero in it.
        if not url or "\0" in url or len(url) > _URL_LIMIT:
            raise BadOutcome(f"its state is an Any with type_url={url!r:.100}: fill it with Pack(message)")
        return url, packed.value

    def fits(self, state: object) -> bool:
        return isinstance(state, AnyMessage)


def form_of(cls: Any) -> Form | None:
    """None: objects of this class are no states."""
    if not isinstance(cls, type):
        return None
    if issubclass(cls, AnyMessage):
        return AnyForm()
    if issubclass(cls, Message):
        # `Message` itself, the base of all, has no name.
        name = getattr(cls.DESCRIPTOR, "full_name", None)
        return None if name is None else MessageForm(cls, str(name), f"{_URL}{name}")
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    if base is None or cls is base or not issubclass(cls, base):
        return None
    return ModelForm(cast(type[Model], cls), cls.__name__)


def _another(name: str, type_url: str) -> BadOutcome:
    return BadOutcome(
        f"it declares a state of {name}, but what is stored is a {type_url:.200}: declare that again, or declare "
        "google.protobuf.Any and convert what is stored"
    )


def _problems(error: ValueError) -> str:
    """Of pydantic's error what is wrong with which field, and no values: they may be secret."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return f"{error!s:.200}"
    found = errors(include_url=False, include_context=False, include_input=False)
    told = [f"{'.'.join(map(str, each['loc'])) or 'it':.100}: {each['msg']:.100}" for each in found[:_PROBLEMS]]
    if len(found) > _PROBLEMS:
        told.append(f"and {len(found) - _PROBLEMS} more")
    return "; ".join(told)
