"""What every call goes through: messages, deadlines, numbers; health and reflection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.proto.tidemill.v1.state_pb2 import ReadStateRequest
from app.rpc import calls
from app.rpc import open as own_open
from app.rpc.server import Server
from tests.kit import rpc
from tests.kit.rpc import CTL, METHODS, Client, code, health_of, refusal, state
from tests.kit.waiting import wait_until

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
_WAITING = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@pytest.fixture
def secret(engine: Engine) -> str:
    rpc.shop(engine, "a")
    return rpc.token()


def waiting(session: Session) -> int:
    """Queries that wait for a lock in this database."""
    session.rollback()
    return int(session.execute(_WAITING).scalar_one())


def lock(connection: Any) -> None:
    connection.execute(sa.text("LOCK TABLE tidemill.stage_state IN ACCESS EXCLUSIVE MODE"))


def test_messages_that_are_none(secret: str) -> None:
    with rpc.serving(max_message=4096) as address, rpc.client(address, secret) as caller:
        for method in METHODS:
            for data in (b"\xff", b"\n\x05ab", b"\n\x02\xc3\x28", b"\x0b" * 500):
                error = refusal(lambda method=method, data=data: caller.raw(method, data))  # type: ignore[misc]
                assert error.code() is StatusCode.INVALID_ARGUMENT, (method, data, error)
            error = refusal(lambda method=method: caller.raw(method, b"\n\x90\x4e" + b"a" * 10000))  # type: ignore[misc]
            assert error.code() is StatusCode.RESOURCE_EXHAUSTED
        assert code(lambda: caller.raw(f"{CTL}Nothing", b"")) is StatusCode.UNIMPLEMENTED
        assert code(lambda: caller.raw("/tidemill.v1.Nothing/Get", b"")) is StatusCode.UNIMPLEMENTED
        assert code(lambda: caller.raw("nothing", b"")) is StatusCode.UNIMPLEMENTED
        assert caller.read("a").version == 0


def test_one_message_and_no_other_number(secret: str) -> None:
    data = ReadStateRequest(kind="parcel", stage="weigh", entity_id="a").SerializeToString()
    with rpc.serving() as address, rpc.client(address, secret) as caller:
        stream = caller.channel.stream_unary(METHODS[0])
        assert stream(iter([data]), metadata=caller.metadata, timeout=60) == b""
        for wrong in ([], [data, data], [data] * 9):
            error = refusal(lambda wrong=wrong: stream(iter(wrong), metadata=caller.metadata, timeout=60))  # type: ignore[misc]
            assert error.code() is StatusCode.INVALID_ARGUMENT


def test_who_never_sends_anything_is_told_to_go(secret: str) -> None:
    """Without a deadline, and as often as there are threads: others are served all the same."""
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait(60)
        yield b""

    with rpc.serving(threads=2, deadline=1.0) as address, rpc.client(address, secret) as caller:
        stream = caller.channel.stream_unary(METHODS[0])
        silent = [stream.future(never(), metadata=caller.metadata) for _ in range(4)]
        health = caller.channel.stream_unary("/grpc.health.v1.Health/Check")
        silent += [health.future(never()) for _ in range(2)]
        assert caller.read("a").version == 0
        assert {each.code() for each in silent} == {StatusCode.CANCELLED}
        over.set()
        assert health_of(caller.channel).Check(HealthCheckRequest(), timeout=60).status == SERVING


@pytest.mark.parametrize("timeout", [5.0, None])
def test_a_deadline_ends_the_query(secret: str, engine: Engine, session: Session, timeout: float | None) -> None:
    """That of the client, or ours where it has none."""
    with rpc.serving(deadline=5.0) as address, rpc.client(address, secret) as caller, engine.connect() as other:
        caller.read("a")
        lock(other)
        call = ThreadPoolExecutor(1).submit(code, lambda: caller.update("a", 0, state(1), timeout=timeout))
        wait_until(lambda: waiting(session), what="the query waits")
        assert call.result(60) is StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: not waiting(session), 60, "the query is over")
        other.rollback()
        assert caller.update("a", 0, state(1)) > 0


def test_no_call_lasts_for_ever(secret: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LONGEST", 1.0)
    with rpc.serving() as address, rpc.client(address, secret) as caller, engine.connect() as other:
        lock(other)
        error = refusal(lambda: caller.update("a", 0, state(1), timeout=3600))
        assert error.code() is StatusCode.DEADLINE_EXCEEDED
        assert "nothing was changed" in error.details()


def test_too_many_at_once(secret: str, engine: Engine, session: Session) -> None:
    with (
        rpc.serving(threads=2, max_calls=3) as address,
        rpc.client(address, secret) as caller,
        engine.connect() as other,
        ThreadPoolExecutor(3) as pool,
    ):
        caller.read("a")
        lock(other)
        held = [pool.submit(caller.update, "a", 0, state(each)) for each in range(3)]
        wait_until(lambda: waiting(session) == 2, what="both threads wait")
        wait_until(lambda: code_of_get(caller, 0.5) is StatusCode.RESOURCE_EXHAUSTED, 60, "a fourth call is refused")
        other.rollback()
        ended = [code_of(each.exception(60)) for each in held]
        assert sorted(each.name for each in ended) == ["ABORTED", "ABORTED", "OK"]
        wait_until(lambda: code_of_get(caller) is StatusCode.OK, 60, "it goes on")


def code_of(error: Any) -> StatusCode:
    found: StatusCode = StatusCode.OK if error is None else error.code()
    return found


def code_of_get(caller: Client, timeout: float = rpc.SECONDS) -> StatusCode:
    try:
        caller.get("a", "b", timeout=timeout)
    except grpc.RpcError as error:
        return code_of(error)
    return StatusCode.OK


def test_a_failure_of_ours_keeps_its_details_to_itself(
    secret: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr("stages.outside.read", broken)
    with rpc.serving() as address, rpc.client(address, secret) as caller:
        error = refusal(lambda: caller.read("a"))
    assert (error.code(), "house" in error.details()) == (StatusCode.INTERNAL, False)
    [record] = [each for each in caplog.records if each.name.startswith("app.rpc")]
    assert record.exc_info is not None
    assert "token caller: INTERNAL" in record.getMessage()


def test_health_is_open_and_says_when_the_server_leaves(secret: str) -> None:
    server = Server(rpc.PLAIN)
    with rpc.client(server.start()) as caller:
        health = health_of(caller.channel)
        for service in ("", "tidemill.v1.StageState", "tidemill.v1.Ctl"):
            assert health.Check(HealthCheckRequest(service=service), timeout=60).status == SERVING
        assert code(lambda: health.Check(HealthCheckRequest(service="x"), timeout=60)) is StatusCode.NOT_FOUND
        assert code(lambda: caller.raw("/grpc.health.v1.Health/Check", b"\xff")) is StatusCode.INVALID_ARGUMENT
        watching = health.Watch(HealthCheckRequest(service="tidemill.v1.Ctl"))
        assert next(watching).status == SERVING
        with ThreadPoolExecutor(1) as reader:
            last = reader.submit(next, watching)
            assert server.stop(5)
            assert last.result(60).status == NOT_SERVING
        assert list(watching) == []


def test_only_some_may_watch(engine: Engine) -> None:
    with rpc.serving() as address, rpc.client(address) as caller:
        health = health_of(caller.channel)
        watching = [health.Watch(HealthCheckRequest()) for _ in range(own_open.WATCHERS)]
        assert {next(each).status for each in watching} == {SERVING}
        assert code(lambda: next(health.Watch(HealthCheckRequest()))) is StatusCode.RESOURCE_EXHAUSTED
        watching[0].cancel()

        def admitted() -> bool:
            again = health.Watch(HealthCheckRequest())
            try:
                return bool(next(again).status == SERVING)
            except grpc.RpcError:
                return False

        wait_until(admitted, 60)


def test_a_flood_of_health_calls_takes_no_place_from_others(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of calls that never say what they ask, by somebody without a token."""
    monkeypatch.setattr(own_open, "SECONDS", 600.0)
    over = threading.Event()

    def never() -> Iterator[bytes]:
        over.wait()
        yield from ()

    def answers(health: Any) -> bool:
        try:
            return bool(health.Check(HealthCheckRequest(), timeout=60).status == SERVING)
        except grpc.RpcError:
            return False

    with rpc.serving(max_calls=20) as address, rpc.client(address, secret) as caller:
        for method in ("Check", "Watch"):
            ask = caller.channel.stream_unary(f"/grpc.health.v1.Health/{method}")
            flood = [ask.future(never()) for _ in range(30)]
            wait_until(lambda flood=flood: sum(each.done() for each in flood) >= 25, 60, "all but a few are refused")  # type: ignore[misc]
            assert code_of_get(caller) is StatusCode.OK
            refused = {each.code() for each in flood if each.done()}
            assert StatusCode.RESOURCE_EXHAUSTED in refused
        over.set()
        wait_until(lambda: answers(health_of(caller.channel)), 60, "it answers again")


def reflection_of(channel: Any) -> Any:
    return ServerReflectionStub(channel).ServerReflectionInfo


def test_reflection_needs_to_be_asked_for_and_a_token(secret: str) -> None:
    def names(caller: Client) -> list[str]:
        ask = iter([ServerReflectionRequest(list_services="")])
        answers = reflection_of(caller.channel)(ask, metadata=caller.metadata, timeout=60)
        return [each.name for answer in answers for each in answer.list_services_response.service]

    with rpc.serving() as address, rpc.client(address, secret) as caller:
        assert code(lambda: names(caller)) is StatusCode.UNIMPLEMENTED
    with rpc.serving(reflection=True) as address, rpc.client(address, secret) as caller:
        assert {"tidemill.v1.Ctl", "tidemill.v1.StageState", "grpc.health.v1.Health"} < set(names(caller))
        actor = rpc.token("only-actor", "actor")
        for other, status in ((None, StatusCode.UNAUTHENTICATED), (actor, StatusCode.PERMISSION_DENIED)):
            assert code(lambda other=other: names(Client(caller.channel, other))) is status  # type: ignore[misc]
        info = caller.channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        broken = info(iter([b"\xff"]), metadata=caller.metadata, timeout=60)
        assert code(lambda: list(broken)) is StatusCode.INVALID_ARGUMENT
