"""States read and updated from outside: compare-and-set, and nothing but that."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import sqlalchemy as sa
from google.protobuf.any_pb2 import Any as AnyMessage
from grpc import StatusCode
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import settings as own_settings
from app.db import transaction
from app.rpc.status import VERSION
from stages.model import Stage
from stages.state import STATE_LIMIT
from tests.kit import rpc, stages_world
from tests.kit.rpc import Client, code, number, refusal, state

WRITERS = 50


@pytest.fixture
def address(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with rpc.serving() as found:
        yield found


@pytest.fixture
def caller(address: str, engine: Engine) -> Iterator[Client]:
    rpc.shop(engine, "a", "b")
    with rpc.client(address, rpc.token()) as found:
        yield found


def test_what_there_is_not(caller: Client) -> None:  # S19
    found = caller.read("a")
    assert (found.version, found.HasField("state")) == (0, False)
    assert code(lambda: caller.read("nobody")) is StatusCode.NOT_FOUND
    assert code(lambda: caller.update("nobody", 0, state(1))) is StatusCode.NOT_FOUND
    for stage, kind in (("nothing", "parcel"), ("weigh", "nothing"), ("", ""), ("system", "parcel"), ("we igh", "A\0")):
        assert code(lambda stage=stage, kind=kind: caller.read("a", stage, kind)) is StatusCode.NOT_FOUND  # type: ignore[misc]
    assert code(lambda: caller.read("a\0")) is StatusCode.INVALID_ARGUMENT
    assert code(lambda: caller.read("a" * 501)) is StatusCode.INVALID_ARGUMENT


def test_from_nothing_to_something_and_back(caller: Client) -> None:  # S19
    assert caller.update("a", 0, state(7)) == 1
    found = caller.read("a")
    assert (found.version, number(found.state)) == (1, 7)
    assert caller.update("a", 1, state(8)) == 2
    assert caller.update("a", 2, None) == 0
    assert caller.read("a").version == 0
    assert caller.update("a", 0, None) == 0
    assert caller.read("b").version == 0
    # No version comes again: who read the one before has not seen this one.
    anew = caller.update("a", 0, state(9))
    assert anew > 2
    for version in (1, 2):
        assert code(lambda version=version: caller.update("a", version, None)) is StatusCode.ABORTED  # type: ignore[misc]
    assert caller.read("a").version == anew


@pytest.mark.parametrize("there", [0, 2])
def test_another_version_is_refused_with_the_one_that_is_there(caller: Client, there: int) -> None:  # S19
    for version in range(there):
        caller.update("a", version, state(version))
    for version in {0, 1, 2, 3, 2**63 - 1} - {there}:
        for new in (state(9), None):
            error = refusal(lambda version=version, new=new: caller.update("a", version, new, visit=True))  # type: ignore[misc]
            assert error.code() is StatusCode.ABORTED
            assert dict(error.trailing_metadata())[VERSION] == str(there)
            assert f"has version {there} now" in error.details()
    assert caller.read("a").version == there
    assert code(lambda: caller.update("a", -1, state(1))) is StatusCode.INVALID_ARGUMENT


def test_a_visit_is_asked_for_with_the_same_commit(caller: Client, session: Session) -> None:  # S19
    session.execute(sa.text("DELETE FROM tidemill.stage_visit"))
    session.commit()
    caller.update("a", 0, state(1))
    assert stages_world.entries(session, "weigh") == []
    assert code(lambda: caller.update("a", 0, state(2), visit=True)) is StatusCode.ABORTED
    assert stages_world.entries(session, "weigh") == []
    caller.update("a", 1, state(2), visit=True)
    assert [row.entity_id for row in stages_world.entries(session, "weigh")] == ["a"]


def test_what_the_stage_could_not_read_is_refused(caller: Client) -> None:
    other = AnyMessage(type_url="type.googleapis.com/google.protobuf.StringValue", value=b"")
    broken = AnyMessage(type_url="type.googleapis.com/google.protobuf.Int64Value", value=b"\xff")
    for wrong in (other, broken, AnyMessage(value=b"x"), AnyMessage(type_url="a b"), AnyMessage(type_url="x" * 501)):
        assert code(lambda wrong=wrong: caller.update("a", 0, wrong)) is StatusCode.INVALID_ARGUMENT  # type: ignore[misc]
    assert caller.read("a").version == 0


def test_a_stage_of_another_process_may_keep_what_it_likes(caller: Client) -> None:
    with transaction() as session:
        session.add(Stage(kind="parcel", name="afar", task="afar", module="afar", max_attempts=3))
    large = AnyMessage(type_url="x/y", value=b"z" * STATE_LIMIT)
    assert caller.update("a", 0, large, "afar") == 1
    assert caller.read("a", "afar").state == large
    large.value += b"z"
    assert code(lambda: caller.update("a", 1, large, "afar")) is StatusCode.INVALID_ARGUMENT
    # It is gone: nobody would ever read it.
    with transaction() as session:
        session.execute(sa.update(Stage).where(Stage.name == "afar").values(removed_at=sa.func.now()))
    assert code(lambda: caller.read("a", "afar")) is StatusCode.NOT_FOUND


def test_a_kind_that_is_declared_elsewhere(caller: Client) -> None:
    with transaction() as session:
        session.add(Stage(kind="elsewhere", name="afar", task="afar", module="afar", max_attempts=3))
    error = refusal(lambda: caller.update("a", 0, state(1), "afar", "elsewhere"))
    assert error.code() is StatusCode.FAILED_PRECONDITION
    assert "TIDEMILL_MODULES" in error.details()
    assert code(lambda: caller.read("a", "afar", "elsewhere")) is StatusCode.FAILED_PRECONDITION


def test_fifty_writers_and_each_version_is_won_once(address: str, caller: Client) -> None:  # S19
    """Each client goes on until it has won once; what it wins is the version that nobody else has."""
    assert caller.token is not None

    def write(secret: str) -> tuple[int, int]:
        lost = 0
        with rpc.client(address, secret) as mine:
            version = 0
            while True:
                found = mine.read("a")
                try:
                    version = mine.update("a", found.version, state(number(found.state) + 1 if found.version else 1))
                except grpc.RpcError as error:
                    assert error.code() is StatusCode.ABORTED, error  # noqa: PT017
                    lost += 1
                else:
                    return version, lost

    with ThreadPoolExecutor(WRITERS) as pool:
        ended = list(pool.map(write, [caller.token] * WRITERS))
    versions = sorted(version for version, _ in ended)
    assert versions == list(range(versions[0], versions[0] + WRITERS))
    assert sum(lost for _, lost in ended) > 0, "nobody met anybody"
    found = caller.read("a")
    assert (found.version, number(found.state)) == (versions[-1], WRITERS)


def test_of_fifty_that_saw_the_same_version_one_wins(address: str, caller: Client) -> None:  # S19
    assert caller.token is not None
    calls = [lambda value=value: caller.update("a", 0, state(value)) for value in range(WRITERS)]

    def won(call: object) -> bool:
        try:
            return bool(call())  # type: ignore[operator]
        except grpc.RpcError as error:
            assert error.code() is StatusCode.ABORTED, error  # noqa: PT017
            return False

    with ThreadPoolExecutor(WRITERS) as pool:
        winners = [value for value, each in enumerate(pool.map(won, calls)) if each]
    assert len(winners) == 1
    found = caller.read("a")
    assert (found.version > 0, number(found.state)) == (True, winners[0])


def test_settings_have_the_defaults_of_the_command(caller: Client) -> None:
    assert own_settings.Settings().rpc_max_message == rpc.PLAIN.max_message
