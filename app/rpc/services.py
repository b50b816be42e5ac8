"""The methods of the services: from messages to calls of Python, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from app.errors import BadRequest
from app.near import shown
from app.proto.tidemill.v1.ctl_pb2 import AdvanceRequest, AdvanceResponse, GetRequest, GetResponse
from app.proto.tidemill.v1.state_pb2 import (
    ReadStateRequest,
    ReadStateResponse,
    UpdateStateRequest,
    UpdateStateResponse,
)
from app.rpc.calls import Method
from app.tokens import Action
from stages import outside
from triggers import ctl

STATE, CTL = "tidemill.v1.StageState", "tidemill.v1.Ctl"
#: Of one call; each is a row that is locked.
PARAMETERS_LIMIT = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _read(request: ReadStateRequest) -> ReadStateResponse:
    found = outside.read(request.kind, request.stage, request.entity_id)
    response = ReadStateResponse(version=found.version)
    if found.version:
        response.state.type_url, response.state.value = found.type_url, found.value
    return response


def _update(request: UpdateStateRequest) -> UpdateStateResponse:
    state = request.state if request.HasField("state") else None
    key = (request.kind, request.stage, request.entity_id)
    return UpdateStateResponse(version=outside.update(*key, request.version, state, visit=request.visit))


def _advance(request: AdvanceRequest) -> AdvanceResponse:
    if len(request.parameters) > PARAMETERS_LIMIT:
        raise BadRequest(f"{len(request.parameters)} parameters are more than the {PARAMETERS_LIMIT} of one call")
    values = {
        (request.entity, name): moment_of(f"{shown(request.entity)}.{shown(name)}", value)
        for name, value in request.parameters.items()
    }
    moved = ctl.advance_many(values)
    return AdvanceResponse(moved=sorted(parameter for _, parameter in moved))


def _get(request: GetRequest) -> GetResponse:
    found = ctl.get(request.entity, request.parameter)
    response = GetResponse()
    if found is not None:
        response.value.CopyFrom(timestamp_of(found))
    return response


def moment_of(what: str, value: Timestamp) -> datetime:
    """To the microsecond, which is what Postgres keeps; downwards, so that it never says too much."""
    if not 0 <= value.nanos < 10**9:
        raise BadRequest(f"{what}: nanos={value.nanos} must be 0 to 999999999")
    try:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    except OverflowError:
        raise BadRequest(f"{what}: seconds={value.seconds} is no time between the years 1 and 9999") from None


def timestamp_of(value: datetime) -> Timestamp:
    since = value - _EPOCH
    return Timestamp(seconds=since.days * 86400 + since.seconds, nanos=since.microseconds * 1000)


def _stage(request: ReadStateRequest | UpdateStateRequest) -> str:
    return f"{request.kind}.{request.stage}"


def _entity(request: AdvanceRequest | GetRequest) -> str:
    return request.entity


METHODS: tuple[Method[Any], ...] = (
    Method(STATE, "Read", ReadStateRequest, Action.STATE, _stage, _read),
    Method(STATE, "Update", UpdateStateRequest, Action.STATE, _stage, _update),
    Method(CTL, "Advance", AdvanceRequest, Action.ADVANCE, _entity, _advance),
    Method(CTL, "Get", GetRequest, Action.READ, _entity, _get),
)
