"""What goes over the wire, and what comes back, checked (S5). Pure.

An entity is the object that Postgres makes of its row, by the names of the columns, or the same in a message. What a
service answers is compared with what it was sent, value by value: what is the same was not changed, however it is
written, so that a service need not repeat a time or a number letter by letter.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain
from math import isfinite
from typing import Any

from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from app.errors import BadOutcome
from app.proto.tidemill.v1 import stage_pb2
from stages.outcomes import KEEP, Keep
from stages.remote.service import Remote
from stages.state import Stored

_BYTEA = "\\x"
#: Deeper values are nobody's data, and would exhaust whoever compares them later.
DEPTH = 100
_MISSING: Any = object()


@dataclass(slots=True)
class Sent:
    """An entity as the service was given it."""

    id: str
    version: int
    #: As JSON.
    document: str
    entity: stage_pb2.Entity
    #: Where it was sent as a message.
    message: Message | None = None


@dataclass(slots=True)
class Answer:
    """What a visit came to. `values`: of columns, as JSON; those that differ from what was sent, or that a patch sets.
    None: untouched."""

    values: dict[str, Any] | None
    patch: bool
    reads: tuple[str, ...]
    timer: datetime | timedelta | None
    state: AnyMessage | Keep | None


def sent(remote: Remote, kind: str, entity_id: str, version: int, document: str) -> Sent:
    """`BadOutcome`: it is no message of the class that was configured."""
    entity = stage_pb2.Entity(kind=kind, id=entity_id, version=version)
    if remote.message is None:
        entity.json = document
        return Sent(entity_id, version, document, entity)
    try:
        fields = _with_bytes(remote.message, json.loads(document), _base64_of)
        message = json_format.ParseDict(fields, remote.message(), ignore_unknown_fields=True)
    except (json_format.ParseError, ValueError, RecursionError) as error:
        name = remote.message.DESCRIPTOR.full_name
        raise BadOutcome(f"{kind} {entity_id!r} cannot be sent as {name}: {error!s:.300}") from None
    entity.message.Pack(message)
    return Sent(entity_id, version, document, entity, message)


def state_of(stored: Stored | None) -> stage_pb2.State | None:
    if stored is None or stored.version == 0:
        return None
    return stage_pb2.State(value=AnyMessage(type_url=stored.type_url, value=stored.value), version=stored.version)


def moment_of(at: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(at.astimezone(UTC))
    return made


# Answers


def wish(answer: stage_pb2.ShouldProcessResponse) -> bool | datetime | timedelta:
    match answer.WhichOneof("answer"):
        case "wanted":
            return answer.wanted
        case "at":
            return _datetime(answer.at)
        case "after":
            return _timedelta(answer.after)
        case _:
            raise BadOutcome("its answer is empty: it must be one of wanted, at and after")


def answer(given: Sent, response: stage_pb2.ProcessResponse) -> Answer:
    values: dict[str, Any] | None = None
    reads: tuple[str, ...] = ()
    match response.WhichOneof("outcome"):
        case "untouched":
            pass
        case "updated":
            values = _updated(given, response.updated)
        case "patch":
            values, reads = _object("patch", response.patch.json), tuple(response.patch.reads)
        case _:
            raise BadOutcome("its answer has no outcome: it must be one of untouched, updated and patch")
    _check_depth(values)
    return Answer(values, response.HasField("patch"), reads, _timer(response), _state(response))


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(DEPTH + 2):
        inner = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not (level := list(chain.from_iterable(inner))):
            return
    raise BadOutcome(f"its answer is nested more than {DEPTH} deep")


def _timer(response: stage_pb2.ProcessResponse) -> datetime | timedelta | None:
    match response.WhichOneof("timer"):
        case "at":
            return _datetime(response.at)
        case "after":
            return _timedelta(response.after)
        case _:
            return None


def _state(response: stage_pb2.ProcessResponse) -> AnyMessage | Keep | None:
    match response.WhichOneof("new_state"):
        case "state":
            return response.state
        case "no_state" if response.no_state:
            return None
    return KEEP


def _datetime(given: Timestamp) -> datetime:
    try:
        return given.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise BadOutcome(f"its time of {given.seconds} s and {given.nanos} ns is none: {error!s:.200}") from None


def _timedelta(given: Duration) -> timedelta:
    try:
        return given.ToTimedelta()
    except (ValueError, OverflowError) as error:
        raise BadOutcome(f"its span of {given.seconds} s and {given.nanos} ns is none: {error!s:.200}") from None


def _updated(given: Sent, updated: stage_pb2.ProcessResponse.Updated) -> dict[str, Any]:
    match updated.WhichOneof("body"):
        case "json":
            before, after = _object("what was sent", given.document), _object("updated", updated.json)
            if unknown := sorted(after.keys() - before.keys()):
                raise BadOutcome(f"updated has {unknown[0]!r:.100}, and the entity has no such column")
            if missing := sorted(before.keys() - after.keys()):
                raise BadOutcome(f"updated lacks the column {missing[0]!r:.100}: answer the whole entity, or a patch")
            try:
                return {name: value for name, value in after.items() if not _same(value, before[name])}
            except RecursionError:
                raise BadOutcome("updated is nested too deep to be compared: answer a patch") from None
        case "message":
            return _changed_fields(given, updated.message)
        case _:
            raise BadOutcome("updated is empty: it must hold the whole entity, as json or as message")


def _changed_fields(given: Sent, packed: AnyMessage) -> dict[str, Any]:
    if given.message is None:
        raise BadOutcome("updated is a message, and the entity was sent as json: answer json")
    made = type(given.message)()
    try:
        if not packed.Unpack(made):
            raise BadOutcome(f"updated is a {packed.type_url!r:.100}, not a {made.DESCRIPTOR.full_name}")
        before, after = _fields(given.message), _fields(made)
    except (ValueError, RecursionError, TypeError, DecodeError, json_format.Error) as error:
        if isinstance(error, BadOutcome):
            raise
        raise BadOutcome(f"updated cannot be read as {made.DESCRIPTOR.full_name}: {error!s:.200}") from None
    names = before.keys() | after.keys()
    return {name: after.get(name) for name in sorted(names) if before.get(name, _MISSING) != after.get(name, _MISSING)}


def _fields(message: Message) -> dict[str, Any]:
    """By the names of columns; what is not set is left out, but for those that always have a value."""
    found = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _with_bytes(type(message), found, _bytea_of)


def _with_bytes(cls: type[Message], fields: dict[str, Any], convert: Any) -> dict[str, Any]:
    """Bytes are written one way by Postgres and another way by protobuf."""
    for each in cls.DESCRIPTOR.fields:
        if each.type == FieldDescriptor.TYPE_BYTES and isinstance(value := fields.get(each.name), str):
            fields[each.name] = convert(value)
    return fields


def _base64_of(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text[2:])).decode() if text.startswith(_BYTEA) else text


def _bytea_of(text: str) -> str:
    return _BYTEA + base64.b64decode(text).hex()


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _object(what: str, text: str) -> dict[str, Any]:
    try:
        # Exact: a number may have more digits than Python's own have room for.
        found = json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise BadOutcome(f"{what} is no JSON: {error!s:.200}") from None
    if not isinstance(found, dict):
        raise BadOutcome(f"{what} is {text[:50]!r}, and must be a JSON object by the names of columns")
    return found


def _same(one: Any, other: Any) -> bool:
    # 1 and true are no equals here, in no depth.
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | Decimal) and isinstance(other, int | Decimal):
        # Many languages have room for 53 bits only: what they had to round they have not changed.
        return one == other or ((rounded := _double(one)) is not None and rounded == _double(other))
    return bool(one == other)


def _double(number: int | Decimal) -> float | None:
    try:
        found = float(number)
    except OverflowError:
        return None
    return found if isfinite(found) else None


def document_of(given: Sent, values: Mapping[str, Any]) -> str:
    """The entity as it was sent, with these values of columns: for the database to read."""
    merged = json.loads(given.document) | values
    # Of numbers the database reads every digit.
    written = [
        f"{json.dumps(name)}:{value if isinstance(value, Decimal) else json.dumps(value, default=float)}"
        for name, value in merged.items()
    ]
    return "{" + ",".join(written) + "}"
