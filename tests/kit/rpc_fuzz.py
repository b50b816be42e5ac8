"""Calls that nobody in their right mind would make, and what must hold after each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import grpc
import hypothesis
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import StatusCode
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.db import autocommit
from app.proto.tidemill.v1.ctl_pb2 import AdvanceRequest, GetRequest
from app.proto.tidemill.v1.state_pb2 import ReadStateRequest, UpdateStateRequest
from tests.kit.rpc import METHODS, Client, state

PROPER = {
    StatusCode.OK,
    StatusCode.INVALID_ARGUMENT,
    StatusCode.UNAUTHENTICATED,
    StatusCode.PERMISSION_DENIED,
    StatusCode.NOT_FOUND,
    StatusCode.FAILED_PRECONDITION,
    StatusCode.OUT_OF_RANGE,
    StatusCode.ABORTED,
    # A message over the limit of all.
    StatusCode.RESOURCE_EXHAUSTED,
}
#: Everything that a call could have written.
_WRITTEN = """
SELECT (SELECT count(*) || ':' || coalesce(sum(version), 0) FROM tidemill.ctl) || ' '
    || (SELECT coalesce(md5(string_agg(each::text, ',' ORDER BY each::text)), '') FROM tidemill.stage_state each) || ' '
    || (SELECT coalesce(md5(string_agg(each::text, ',' ORDER BY each::text)), '') FROM tidemill.stage_visit each) || ' '
    || (SELECT count(*) FROM public.parcel)
"""


@dataclass(frozen=True)
class Odd:
    method: str
    #: Of `tokens`, by name; or what is sent as one.
    token: str
    data: bytes


_TEXT = st.one_of(
    st.sampled_from(["parcel", "weigh", "price", "a", "b", "door", "system", "dds.orders", "loaded_to", "", "\0"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.just("x" * 1000),
)
_NUMBER = st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1))
_TIME = st.builds(Timestamp, seconds=_NUMBER, nanos=st.one_of(st.just(0), st.integers(-(2**31), 2**31 - 1)))
_STATE = st.one_of(
    st.none(),
    st.builds(state, st.integers(0, 9)),
    st.builds(AnyMessage, type_url=_TEXT, value=st.binary(max_size=50)),
)
_VALID: Mapping[str, st.SearchStrategy[Message]] = {
    METHODS[0]: st.builds(ReadStateRequest, kind=_TEXT, stage=_TEXT, entity_id=_TEXT),
    METHODS[1]: st.one_of(
        st.builds(
            UpdateStateRequest,
            kind=_TEXT,
            stage=_TEXT,
            entity_id=_TEXT,
            version=_NUMBER,
            state=_STATE,
            visit=st.booleans(),
        ),
        st.builds(
            UpdateStateRequest,
            kind=st.just("parcel"),
            stage=st.sampled_from(["weigh", "price"]),
            entity_id=st.sampled_from("ab"),
            version=st.integers(0, 3),
            state=_STATE,
            visit=st.booleans(),
        ),
    ),
    METHODS[2]: st.builds(AdvanceRequest, entity=_TEXT, parameters=st.dictionaries(_TEXT, _TIME, max_size=4)),
    METHODS[3]: st.builds(GetRequest, entity=_TEXT, parameter=_TEXT),
}


@st.composite
def _mutated(draw: st.DrawFn, method: str) -> bytes:
    """A valid message in which some bytes were changed, added or left out."""
    data = bytearray(draw(_VALID[method]).SerializeToString(deterministic=True))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["change", "add", "leave out", "end"])):
            case "change" if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case "add":
                data[at:at] = draw(st.binary(max_size=5))
            case "leave out":
                del data[at : at + draw(st.integers(1, 5))]
            case _:
                del data[at:]
    return bytes(data)


@st.composite
def odd(draw: st.DrawFn) -> Odd:
    method = draw(st.sampled_from(METHODS))
    known = st.sampled_from(["operator", "operator", "actor", "producer", "viewer", "other", "none"])
    token = draw(st.one_of(known, st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60)))
    data = draw(st.one_of(_mutated(method), _mutated(method), st.binary(max_size=300)))
    return Odd(method, token, data)


def written() -> str:
    with autocommit() as connection:
        return str(connection.exec_driver_sql(_WRITTEN).scalar_one())


def fuzz(caller: Client, tokens: Mapping[str, str], seconds: float, seed: int) -> Counter[str]:
    """For so long; how many calls ended with which status."""
    end, told = time.monotonic() + seconds, Counter[str]()
    before = written()

    def one(call: Odd) -> None:
        nonlocal before
        if time.monotonic() > end:
            return
        found = _status(caller, call, tokens.get(call.token, call.token))
        told[found.name] += 1
        assert found in PROPER, (found, call)
        after = written()
        assert found is StatusCode.OK or after == before, (found, call)
        if call.token not in ("operator", "actor", "producer"):
            assert after == before, call
        before = after

    quiet = settings(
        max_examples=500,
        deadline=timedelta(seconds=60),
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    while time.monotonic() < end:
        hypothesis.seed(seed)(quiet(given(odd())(one)))()
        seed += 1
    return told


def _status(caller: Client, call: Odd, token: str) -> StatusCode:
    metadata = [] if token == "none" else [("authorization", f"Bearer {token}")]
    try:
        caller.raw(call.method, call.data, metadata)
    except grpc.RpcError as error:
        found: StatusCode = error.code()
        return found
    return StatusCode.OK
