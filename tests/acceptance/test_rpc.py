"""`tidemill rpc` as a program: TLS, stopping, outages, and what its log tells."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.embedded import OwnServers
from tests.kit import rpc, stages_world
from tests.kit.certificates import Authority, Pair
from tests.kit.cli import Tidemill, one_sentence, script
from tests.kit.process import Processes
from tests.kit.rpc import code, health_of, refusal, state
from tests.kit.waiting import wait_until

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
UNREACHED = StatusCode.UNAVAILABLE


def trusting(authority: Authority, own: Pair | None = None) -> grpc.ChannelCredentials:
    if own is None:
        return grpc.ssl_channel_credentials(authority.certificate)
    return grpc.ssl_channel_credentials(authority.certificate, own.key, own.cert)


def call(address: str, secret: str, credentials: grpc.ChannelCredentials | None = None) -> StatusCode:
    with rpc.client(address, secret, credentials) as caller:
        try:
            caller.get("a", "b")
        except grpc.RpcError as error:
            found: StatusCode = error.code()
            return found
        return StatusCode.OK


def test_tls_and_certificates_that_change(
    env: dict[str, str], engine: Engine, processes: Processes, tmp_path: Path
) -> None:
    authority, other, secret = Authority(), Authority("another"), rpc.token()
    cert, key = authority.pair().write(tmp_path, "server")
    process, address = rpc.program(processes, env, "--tls-cert", str(cert), "--tls-key", str(key))
    assert call(address, secret, trusting(authority)) is StatusCode.OK
    assert call(address, secret, trusting(other)) is UNREACHED
    assert call(address, secret) is UNREACHED
    # Half of a change: the old ones stay.
    new = other.pair()
    cert.write_bytes(new.cert)
    assert call(address, secret, trusting(authority)) is StatusCode.OK
    process.wait_for("changed certificates cannot be used")
    key.write_bytes(new.key)
    assert call(address, secret, trusting(other)) is StatusCode.OK
    assert call(address, secret, trusting(authority)) is UNREACHED
    authority.pair(expired=True).write(tmp_path, "server")
    assert call(address, secret, trusting(authority)) is UNREACHED
    process.terminate()
    assert process.wait() == 0, process.log
    assert "PRIVATE" not in process.log
    assert secret not in process.log


def test_certificates_of_clients(env: dict[str, str], engine: Engine, processes: Processes, tmp_path: Path) -> None:
    authority, clients, other, secret = Authority(), Authority("of clients"), Authority("other"), rpc.token()
    cert, key = authority.pair().write(tmp_path, "server")
    root = tmp_path / "clients.pem"
    root.write_bytes(clients.certificate)
    words = {"TIDEMILL_RPC_TLS_CERT": str(cert), "TIDEMILL_RPC_TLS_KEY": str(key), "TIDEMILL_RPC_CLIENT_CA": str(root)}
    _, address = rpc.program(processes, env | words)
    assert call(address, secret, trusting(authority, clients.pair("us.example.org"))) is StatusCode.OK
    # A certificate opens the door, and is no token.
    assert call(address, "tdm_x", trusting(authority, clients.pair("us.example.org"))) is StatusCode.UNAUTHENTICATED
    for wrong in (
        None,
        other.pair("them.example.org"),
        authority.pair("them.example.org"),
        clients.pair("us.example.org", expired=True),
    ):
        assert call(address, secret, trusting(authority, wrong)) is UNREACHED
    assert call(address, secret) is UNREACHED
    # Health too is behind the door.
    with rpc.client(address, None, trusting(authority)) as caller:
        health = health_of(caller.channel)
        assert code(lambda: health.Check(HealthCheckRequest(), timeout=60)) is UNREACHED


def test_a_call_that_runs_may_end(env: dict[str, str], engine: Engine, processes: Processes, session: Session) -> None:
    rpc.shop(engine, "a")
    process, address = rpc.program(processes, env)
    with rpc.client(address, rpc.token()) as caller, engine.connect() as other, ThreadPoolExecutor(2) as pool:
        watching = health_of(caller.channel).Watch(HealthCheckRequest())
        assert next(watching).status == HealthCheckResponse.SERVING
        assert caller.update("a", 0, state(1)) > 0
        _lock(other)
        running = pool.submit(caller.update, "a", 1, state(2))
        wait_until(lambda: _waits(session), 60, "the call waits")
        last = pool.submit(next, watching)
        process.terminate()
        assert last.result(60).status == HealthCheckResponse.NOT_SERVING
        wait_until(lambda: call(address, "") is UNREACHED, 60, "no new calls")
        other.rollback()
        assert running.result(60) == 2
    assert process.wait() == 0, process.log


def test_a_call_that_does_not_end_is_cut_off(
    env: dict[str, str], engine: Engine, processes: Processes, session: Session
) -> None:
    rpc.shop(engine, "a")
    process, address = rpc.program(processes, env, "--grace", "500ms")
    with rpc.client(address, rpc.token()) as caller, engine.connect() as other, ThreadPoolExecutor(1) as pool:
        caller.read("a")
        _lock(other)
        running = pool.submit(refusal, lambda: caller.update("a", 0, state(2), timeout=50))
        wait_until(lambda: _waits(session), 60, "the call waits")
        process.terminate()
        assert process.wait() == 0, process.log
        assert running.result(60).code() in (StatusCode.CANCELLED, UNREACHED)
        assert "cut off" in process.log
        other.rollback()
    wait_until(lambda: not _waits(session), 60, "its query is over")
    assert session.execute(sa.text("SELECT count(*) FROM tidemill.stage_state")).scalar_one() == 0


def _lock(connection: Any) -> None:
    connection.execute(sa.text("LOCK TABLE tidemill.stage_state IN ACCESS EXCLUSIVE MODE"))


def _waits(session: Session) -> bool:
    session.rollback()
    query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return session.execute(sa.text(query)).first() is not None


def test_the_database_goes_and_comes_back(
    env: dict[str, str], engine: Engine, processes: Processes, servers: OwnServers
) -> None:
    secret = rpc.token()
    process, address = rpc.program(processes, env)
    with rpc.client(address, secret) as caller:
        assert caller.advance("dds.orders", loaded_to=NOON) == ["loaded_to"]
        servers.postgres.kill()
        wait_until(lambda: code(lambda: caller.get("dds.orders", "loaded_to")) is UNREACHED, 300)
        error = refusal(lambda: caller.get("dds.orders", "loaded_to"))
        assert error.details() == "the database does not answer: try again"
        assert code(lambda: rpc.Client(caller.channel, "tdm_x").get("a", "b")) is UNREACHED
        # It lives: to start it again would not help.
        health = health_of(caller.channel).Check(HealthCheckRequest(), timeout=60)
        assert health.status == HealthCheckResponse.SERVING
        servers.postgres.start()
        wait_until(lambda: call(address, secret) is StatusCode.OK, 60, "it is served again")
        # The server of the tests may lose its last commits when it is killed.
        caller.advance("dds.orders", loaded_to=NOON)
        assert caller.get("dds.orders", "loaded_to").value.ToDatetime(UTC) == NOON
    process.terminate()
    assert process.wait() == 0, process.log


def test_many_at_once_and_a_log_without_secrets(env: dict[str, str], engine: Engine, processes: Processes) -> None:
    rpc.shop(engine, "a", "b")
    process, address = rpc.program(processes, env | {"TIDEMILL_LOG_LEVEL": "DEBUG"}, "--threads", "4")
    secrets = [rpc.token("all"), rpc.token("look", "viewer"), rpc.token("one", "actor", "parcel.price"), "tdm_wrong"]
    found: list[StatusCode] = []

    def work(secret: str) -> None:
        with rpc.client(address, secret) as caller:
            for number in range(10):
                for each in (
                    lambda number=number: caller.update("a", number, state(number), visit=True),
                    lambda: caller.read("b"),
                    lambda: caller.advance("dds.orders", loaded_to=NOON),
                    lambda: caller.get("dds.orders", "loaded_to"),
                ):
                    try:
                        each()
                    except grpc.RpcError as error:
                        found.append(error.code())

    threads = [threading.Thread(target=work, args=(secret,)) for secret in secrets * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert set(found) <= {StatusCode.ABORTED, StatusCode.PERMISSION_DENIED, StatusCode.UNAUTHENTICATED}
    process.terminate()
    assert process.wait() == 0, process.log
    assert process.log.count("token look: PERMISSION_DENIED") == 3 * 10 * 3
    assert process.log.count("no token: UNAUTHENTICATED") == 3 * 10 * 4
    for secret in secrets:
        assert secret not in process.log
    with Session(engine) as session:
        assert [row.entity_id for row in stages_world.entries(session, "weigh")] == ["a"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--listen 0.0.0.0:0", "--plaintext"),
        ("--listen [::]:0", "--plaintext"),
        ("--listen example.org:7233", "--plaintext"),
        ("--tls-cert /nowhere.pem", "belong together"),
        ("--client-ca /nowhere.pem", "--tls-cert"),
        ("--deadline 2min", "between"),
        ("--deadline soon", "not a duration"),
        ("--threads 0", "--threads"),
    ],
)
def test_what_is_refused_before_it_begins(tidemill: Tidemill, words: str, told: str) -> None:
    said = tidemill(f"rpc {words}")
    assert said.code in (1, 2)
    assert one_sentence(said, told), said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--tls-cert /nowhere.pem --tls-key /nowhere.key", "No such file"),
        ("--listen 127.0.0.1:nothing", "cannot be listened on"),
    ],
)
def test_what_cannot_be_served(env: dict[str, str], words: str, told: str) -> None:
    said = script(f"rpc {words}", env)
    assert (said.code, one_sentence(said, told)) == (1, True), said


def test_two_servers_do_not_share_an_address(env: dict[str, str], engine: Engine, processes: Processes) -> None:
    _, address = rpc.program(processes, env)
    said = script(f"rpc --listen {address}", env)
    assert (said.code, one_sentence(said, address, "taken")) == (1, True), said


def test_a_socket_of_this_machine(env: dict[str, str], engine: Engine, processes: Processes, tmp_path: Path) -> None:
    secret = rpc.token()
    process, address = rpc.program(processes, env, "--listen", f"unix:{tmp_path}/rpc.sock")
    assert call(address, secret) is StatusCode.OK
    process.terminate()
    assert process.wait() == 0
