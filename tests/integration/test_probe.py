"""`tidemill probe`: one service's own work, and what a restart would not help. The services run in test_compose."""

from __future__ import annotations

import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import duties, shares, workers
from app.db import autocommit
from app.duties import Duties
from app.health import listening, own
from app.health.sign import Sign
from app.outbox.model import Event
from app.settings import settings
from tests.kit import console as http
from tests.kit import rpc as grpc
from tests.kit.certificates import Authority
from tests.kit.cli import Tidemill, one_sentence, tidemill

__all__ = ["tidemill"]

HOST = socket.gethostname()
NOWHERE = "postgresql+psycopg2://u@127.0.0.1:1/none"


def kinds(signs: Iterator[Sign]) -> dict[str, tuple[bool, bool]]:
    return {sign.finding.check: (sign.good, sign.curable) for sign in signs}


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch, database_url: str) -> Callable[[], None]:
    def leave() -> None:
        monkeypatch.setenv("TIDEMILL_DATABASE_URL", NOWHERE)
        from tests.conftest import forget_connections

        forget_connections()

    return leave


def test_a_worker_that_is_silent_is_to_be_started_again(
    tidemill: Tidemill, session: Session, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "PING_SECONDS", 0.5)
    name = own.full_name("mail")
    assert name == f"mail@{HOST}"
    assert tidemill("probe worker --name mail --live").code == 1
    with autocommit() as connection:
        workers.beat(connection, name, ["jobs"], 1, 1)
    said = tidemill("probe worker --name mail --live --json")
    # It has reported, and yet nobody of this name listens.
    assert (said.code, [each["level"] for each in said.data["findings"]]) == (1, ["ok", "ok", "fail"])
    session.execute(sa.update(workers.Worker).values(beat_at=sa.func.now() - workers.GONE * 2))
    session.commit()
    said = tidemill("probe worker --name mail --live")
    assert said.code == 1
    assert re.search(f"worker {re.escape(name)} reported [3-9][0-9]s ago", said.out), said.out


def test_a_database_that_is_away_is_no_reason_to_start_again(tidemill: Tidemill, no_database: Any) -> None:
    no_database()
    for service in ("worker", "scheduler"):
        assert tidemill(f"probe {service}").code == 1
        said = tidemill(f"probe {service} --live")
        assert (said.code, said.out.split()[:2]) == (0, ["fail", "database"])


def test_a_broker_that_is_away_is_no_reason_to_start_again(
    tidemill: Tidemill, engine: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMILL_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("TIDEMILL_BEAT_FILE", str(tmp_path / "beat"))
    settings.cache_clear()
    with autocommit() as connection:
        workers.beat(connection, own.full_name(None), ["jobs"], 1, 1)
    for service in ("worker", "beat"):
        assert tidemill(f"probe {service}").code == 1
        assert tidemill(f"probe {service} --live").code == 0


def test_a_scheduler_needs_leaders_and_a_relay_that_goes_on(tidemill: Tidemill, session: Session) -> None:
    assert tidemill("probe scheduler --live").code == 1
    with autocommit() as connection:
        shares.report(connection, shares.own_name())
    assert tidemill("probe scheduler --live").code == 0
    assert kinds(own.scheduler()) == {"report": (True, False), "duties": (False, True), "relay": (True, False)}
    with leading():
        assert tidemill("probe scheduler").code == 0
        session.add(Event(kind="offer", entity_id="1", stage="", version=1, fields=[], entity={}, state_version=0))
        session.flush()
        session.execute(sa.update(Event).values(saved_at=sa.func.now() - timedelta(minutes=5)))
        session.commit()
        assert kinds(own.scheduler())["relay"] == (False, True)
    session.execute(sa.update(shares.Scheduler).values(beat_at=sa.func.now() - own.SCHEDULER_SILENT * 2))
    session.commit()
    assert tidemill("probe scheduler --live").code == 1


@contextmanager
def leading() -> Iterator[None]:
    import app.passes  # noqa: F401 - fills the registry
    from app.registry import registry

    held = Duties()
    for each in registry.passes.values():
        assert held.hold(each.name)
    yield
    held.drop()


def test_which_duties_are_led_is_seen_by_their_locks(engine: object) -> None:
    held = Duties()
    assert held.hold("relay")
    with autocommit() as connection:
        assert duties.led(connection, ["relay", "dispatch"]) == {"relay"}
    held.drop()


def test_beat_tells_of_itself_by_its_file(
    tidemill: Tidemill, broker_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert one_sentence(tidemill("probe beat"), "TIDEMILL_BEAT_FILE is not set")
    file = tmp_path / "beat"
    monkeypatch.setenv("TIDEMILL_BEAT_FILE", str(file))
    settings.cache_clear()
    assert tidemill("probe beat --live").code == 1
    file.touch()
    assert tidemill("probe beat --live").code == 0
    before = time.time() - 2 * own.BEAT_SILENT.total_seconds()
    os.utime(file, (before, before))
    assert tidemill("probe beat --live").code == 1


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return Authority().pair("tidemill.example").write(tmp_path, "server")


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_the_console_is_asked_where_it_listens(
    tidemill: Tidemill,
    engine: object,
    monkeypatch: pytest.MonkeyPatch,
    certificate: tuple[Path, Path],
    no_database: Any,
    secure: object,
) -> None:
    with http.serving(**({"tls": certificate} if secure else {})) as url:
        monkeypatch.setenv("TIDEMILL_CONSOLE_PORT", url.rpartition(":")[2].strip("/"))
        if secure:
            monkeypatch.setenv("TIDEMILL_CONSOLE_TLS_CERT", str(certificate[0]))
        settings.cache_clear()
        assert tidemill("probe console").code == 0
        no_database()
        assert tidemill("probe console").code == 1
        assert tidemill("probe console --live").code == 0
    assert tidemill("probe console --live").code == 1


def test_another_certificate_is_not_the_console(
    tidemill: Tidemill, engine: object, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    other, _ = Authority().pair("other.example").write(tmp_path, "other")
    with http.serving(tls=certificate) as url:
        monkeypatch.setenv("TIDEMILL_CONSOLE_PORT", url.rpartition(":")[2].strip("/"))
        monkeypatch.setenv("TIDEMILL_CONSOLE_TLS_CERT", str(other))
        settings.cache_clear()
        assert tidemill("probe console").code == 1


def test_rpc_is_asked_by_its_health_service(
    tidemill: Tidemill, engine: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with grpc.serving() as address:
        monkeypatch.setenv("TIDEMILL_RPC_LISTEN", address)
        settings.cache_clear()
        assert tidemill("probe rpc").code == 0
    assert tidemill("probe rpc --live").code == 1


def test_rpc_with_tls_shows_its_certificate(
    tidemill: Tidemill, engine: object, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=_greet, args=(context, server))
        thread.start()
        monkeypatch.setenv("TIDEMILL_RPC_LISTEN", f"0.0.0.0:{server.getsockname()[1]}")
        monkeypatch.setenv("TIDEMILL_RPC_TLS_CERT", str(certificate[0]))
        settings.cache_clear()
        assert tidemill("probe rpc").code == 0
        thread.join(60)
    assert tidemill("probe rpc").code == 1


def _greet(context: ssl.SSLContext, server: socket.socket) -> None:
    plain, _ = server.accept()
    with plain, context.wrap_socket(plain, server_side=True) as client:
        client.recv(1)


@pytest.mark.parametrize(
    ("listen", "target"),
    [("0.0.0.0:1", ("127.0.0.1", "1")), ("[::]:7233", ("[::1]", "7233")), ("10.0.0.1:9", ("10.0.0.1", "9"))],
)
def test_what_listens_everywhere_is_asked_here(listen: str, target: tuple[str, str]) -> None:
    assert listening._address(listen) == target


def test_flower_answers_where_it_is_said_to(tidemill: Tidemill) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/healthcheck"
        thread = threading.Thread(target=_refuse, args=(server,))
        thread.start()
        said = tidemill("probe flower --url", url)
        thread.join(60)
    assert (said.code, "answers with status 503" in said.out) == (1, True)
    assert tidemill("probe flower --url", url).code == 1


def _refuse(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.recv(4096)
        client.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
