"""The control table over gRPC: forward only, to the microsecond, within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from app.errors import BadRequest
from app.rpc.services import PARAMETERS_LIMIT, moment_of, timestamp_of
from tests.kit import rpc
from tests.kit.rpc import Client, code, refusal
from triggers import ctl

NOON = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def caller(engine: Engine) -> Iterator[Client]:
    with rpc.serving() as address, rpc.client(address, rpc.token(role="producer")) as found:
        yield found


def test_forward_together_or_not_at_all(caller: Client) -> None:  # T15
    assert not caller.get("dds.orders", "loaded_to").HasField("value")
    assert caller.advance("dds.orders", loaded_to=NOON, checked_to=NOON) == ["checked_to", "loaded_to"]
    assert caller.get("dds.orders", "loaded_to").value.ToDatetime(UTC) == NOON
    assert caller.advance("dds.orders", loaded_to=NOON) == []
    error = refusal(lambda: caller.advance("dds.orders", checked_to=NOON + timedelta(1), loaded_to=NOON - timedelta(1)))
    assert error.code() is StatusCode.FAILED_PRECONDITION
    assert "loaded_to" in error.details()
    assert ctl.get("dds.orders", "checked_to") == NOON


def test_what_is_no_time_or_too_far(caller: Client) -> None:
    far, wrong = StatusCode.OUT_OF_RANGE, StatusCode.INVALID_ARGUMENT
    for value, status in (
        (Timestamp(seconds=253402300799), far),
        (Timestamp(seconds=253402300800), wrong),
        (Timestamp(seconds=2**63 - 1), wrong),
        (Timestamp(seconds=-(2**63)), wrong),
        (Timestamp(seconds=-62135596800), wrong),
        (Timestamp(seconds=1, nanos=-1), wrong),
        (Timestamp(seconds=1, nanos=10**9), wrong),
        (Timestamp(seconds=1, nanos=-(2**31)), wrong),
    ):
        assert code(lambda value=value: caller.advance("a", b=value)) is status, value  # type: ignore[misc]
    assert ctl.of("a") == []


def test_names_and_numbers(caller: Client) -> None:
    wrong = StatusCode.INVALID_ARGUMENT
    for entity in ("", " ", "a\0", "a\n", "x" * 201):
        assert code(lambda entity=entity: caller.advance(entity, b=NOON)) is wrong  # type: ignore[misc]
        assert code(lambda entity=entity: caller.get(entity, "b")) is wrong  # type: ignore[misc]
        assert code(lambda name=entity: caller.advance("a", None, **{name: NOON})) is wrong  # type: ignore[misc]
    assert code(lambda: caller.advance("a")) is wrong
    many = {f"p{number}": NOON for number in range(PARAMETERS_LIMIT + 1)}
    assert code(lambda: caller.advance("a", None, **many)) is wrong
    many.popitem()
    assert len(caller.advance("a", None, **many)) == PARAMETERS_LIMIT
    assert caller.advance("ä/😀", ü=NOON) == ["ü"]


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_come_back(moment: datetime) -> None:
    assert moment_of("it", timestamp_of(moment)) == moment


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_any_timestamp_is_a_time_or_refused(seconds: int, nanos: int) -> None:
    given = Timestamp(seconds=seconds, nanos=nanos)
    try:
        found = moment_of("it", given)
    except BadRequest:
        return
    assert (timestamp_of(found).seconds, timestamp_of(found).nanos) == (seconds, nanos // 1000 * 1000)
