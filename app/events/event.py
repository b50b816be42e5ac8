"""An event as a subscriber gets it, read from the message of any broker."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage

from app.errors import BadRequest

#: In bytes. The relay sends nothing that is larger.
LARGEST = 64 * 1024 * 1024


class Malformed(BadRequest):
    """A message that is no event; it is dropped, with a word in the log."""


def _nobody() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Event:
    """A save by a stage, as it was then."""

    #: Grows with every save of one entity. Of two entities it says nothing.
    sequence: int
    kind: str
    id: str
    stage: str
    #: Of the entity.
    version: int
    #: That the save changed; none: the state alone.
    fields: tuple[str, ...]
    #: None: it is larger than a message may be, and has to be read from the database.
    entity: dict[str, Any] | None
    #: What the stage keeps beside the entity; None: nothing.
    state: AnyMessage | None
    state_version: int
    saved_at: datetime
    _ack: Callable[[], None] = field(default=_nobody, repr=False, compare=False)

    @property
    def key(self) -> tuple[str, str]:
        """Whose sequence it is."""
        return self.kind, self.id

    def ack(self) -> None:
        """It is dealt with, and does not come again. A second time does nothing."""
        self._ack()


def read(body: str | bytes, ack: Callable[[], None] = _nobody) -> Event:
    if len(body) > LARGEST:
        raise Malformed(f"a message of {len(body)} bytes is larger than {LARGEST}")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a message is not JSON: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise Malformed(f"a message is a JSON {type(found).__name__}, not an object")
    try:
        return _event(found, ack)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Malformed(f"a message is no event: {type(error).__name__} {str(error)[:100]}") from None


def _event(found: dict[str, Any], ack: Callable[[], None]) -> Event:
    state = found["state"]
    entity = found["entity"]
    saved_at = datetime.fromisoformat(_text(found["saved_at"]))
    if saved_at.tzinfo is None:
        raise ValueError("saved_at has no time zone")
    if entity is not None and not isinstance(entity, dict):
        raise TypeError("entity is no object")
    return Event(
        sequence=_number(found["sequence"]),
        kind=_text(found["kind"]),
        id=_text(found["id"]),
        stage=_text(found["stage"]),
        version=_number(found["version"]),
        fields=tuple(_text(each) for each in found["fields"]),
        entity=entity,
        state=None if state is None else _state(state),
        state_version=0 if state is None else _number(state["version"]),
        saved_at=saved_at,
        _ack=ack,
    )


def _state(found: dict[str, Any]) -> AnyMessage:
    try:
        value = base64.b64decode(_text(found["value"]), validate=True)
    except binascii.Error as error:
        raise ValueError(f"the state is not base64: {error}") from None
    return AnyMessage(type_url=_text(found["type_url"]), value=value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:30]!r} is not a text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{str(value)[:30]!r} is not a whole number")
    return value
