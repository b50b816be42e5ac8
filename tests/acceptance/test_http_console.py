"""`tidemill console` as a program: both examples, crashes on either side, TLS, and stopping (P10)."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from processes.model import DECISION, Process
from tests.kit import console
from tests.kit.certificates import Authority
from tests.kit.cli import one_sentence, script
from tests.kit.console import Caller, answer, poll_path
from tests.kit.process import ROOT, Processes
from tests.kit.waiting import wait_until

EXAMPLE = ROOT / "examples" / "outside_actor"
MODULE = "outside_actor.purchases"
Start = Callable[..., int]


@pytest.fixture
def world(env: dict[str, str], processes: Processes) -> dict[str, str]:
    """Workers for all that is done inside; the environment."""
    found = env | {
        "TIDEMILL_MODULES": MODULE,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}",
        "TIDEMILL_LEASE": "1s",
        "TIDEMILL_SWEEP_INTERVAL": "200ms",
    }
    processes.celery_worker(found, 1)
    processes.scheduler(found)
    return found


def purchase(caller: Caller, amount: int) -> int:
    body = {"name": "purchase", "args": [f"o-{amount}", amount], "idempotency_key": f"o-{amount}"}
    said = caller.post("/api/v1/processes", body)
    assert said.status == 200, said
    return int(said.data["process_id"])


def value_of(session: Session, process_id: int) -> Any:
    def look() -> Any:
        session.rollback()
        row = session.get_one(Process, process_id)
        assert row.state.value in ("REGISTERED", "ACTIVE", "FINISHED"), row.error
        return row.state.value == "FINISHED" and row.value

    return wait_until(look, 60, f"process {process_id} has finished")


def test_both_examples(world: dict[str, str], processes: Processes, session: Session, tmp_path: Path) -> None:  # P10
    server, url = console.program(processes, world)
    producer = Caller(url, console.token("shop", "producer", "purchase"))
    secret = tmp_path / "approve.token"
    secret.write_text(console.token("approver", "actor", "approve") + "\n")
    for amount, value in ((7, "o-7 is ordered, approved by approve.sh"), (5000, "o-5000 is not ordered: 5000 is more")):
        process_id = purchase(producer, amount)
        shell = processes.start(["sh", str(EXAMPLE / "approve.sh"), url, str(secret)], world, "approve.sh")
        assert shell.wait(100) == 0, shell.log
        assert '{"outcome":"accepted","why":null}' in shell.log
        assert value_of(session, process_id).startswith(value)
    command = ["sh", "-c", f"exec {sys.executable} {EXAMPLE / 'approve.py'} {url} < {secret}"]
    python = processes.start(command, world, "approve.py")
    made = [(purchase(producer, amount), amount) for amount in (8, 1001, 9)]
    for process_id, amount in made:
        words = f"is not ordered: {amount} is more than 1000" if amount > 1000 else "is ordered, approved by approve.py"
        assert value_of(session, process_id) == f"o-{amount} {words}"
    python.terminate()
    assert python.wait() == 0, python.log
    assert python.log.endswith("ended\n")
    server.terminate()
    assert server.wait() == 0, server.log
    assert "token approver: 200" in server.log
    for text in (server.log, python.log):
        assert secret.read_text().strip() not in text


def test_a_server_that_dies_between_poll_and_release(
    world: dict[str, str], processes: Processes, session: Session
) -> None:
    server, url = console.program(processes, world)
    caller = Caller(url, console.token("all", "operator"))
    process_id = purchase(caller, 7)
    (task,) = caller.poll("approve", wait="60s")
    server.kill()
    with pytest.raises(ConnectionError):
        caller.release(task, value={"by": "me"})
    # Nothing of the task is known to the server alone.
    _, url = console.program(processes, world)
    said = replace(caller, url=url).release(task, value={"by": "me"})
    assert (said.status, said.data["outcome"]) == (200, "accepted"), said
    assert value_of(session, process_id) == "o-7 is ordered, approved by me"


def test_an_actor_that_dies_after_its_poll(world: dict[str, str], processes: Processes, session: Session) -> None:
    server, url = console.program(processes, world)
    caller = Caller(url, console.token("all", "operator"))
    process_id = purchase(caller, 7)
    (lost,) = caller.poll("approve", wait="60s")
    assert 0 < lost["remaining"] <= 5
    # It says nothing more: after its work timeout the task is handed out again.
    (task,) = caller.poll("approve", wait="60s")
    assert (task["process_id"], task["attempt"]) == (process_id, 2)
    assert task["idempotency_key"] == lost["idempotency_key"]
    assert caller.heartbeat(lost).error[0] == "claim_lost"
    assert caller.release(task, value={"by": "another"}).status == 200
    late = caller.release(lost, value={"by": "me"})
    assert (late.status, late.data["outcome"]) == (409, "refused")
    assert late.data["why"] in ("the task has finished already", "the process is FINISHED")
    assert value_of(session, process_id) == "o-7 is ordered, approved by another"
    # One that hangs up while it waits is handed nothing.
    connection = caller.connect()
    caller.send(connection, poll_path("approve"), {"wait": "60s"})
    connection.close()
    server.wait_for(r"poll from 127.0.0.1, token all: 499")
    purchase(caller, 8)
    (task,) = caller.poll("approve", wait="60s")
    assert task["attempt"] == 1
    held = sa.select(DECISION.c.claimed_by).where(DECISION.c.pass_key == task["pass_key"])
    assert session.execute(held).scalar_one() == "all@http"


def test_tls_and_a_certificate_that_changes(
    env: dict[str, str], engine: Engine, processes: Processes, tmp_path: Path
) -> None:
    authority, other = Authority(), Authority("another")
    cert, key = authority.pair().write(tmp_path, "server")
    words = ("--tls-cert", str(cert), "--tls-key", str(key))
    server, url = console.program(processes, env, *words)
    assert url.startswith("https://")

    def trusting(found: Authority) -> Caller:
        return Caller(url, None, ssl.create_default_context(cadata=found.certificate.decode()))

    assert trusting(authority).get("/healthz").status == 200
    with pytest.raises(ssl.SSLError):
        trusting(other).get("/healthz")
    new = other.pair()
    cert.write_bytes(new.cert)
    server.wait_for("the changed certificate cannot be used")
    assert trusting(authority).get("/healthz").status == 200
    key.write_bytes(new.key)
    server.wait_for("the certificate was read again")
    assert trusting(other).get("/healthz").status == 200
    server.terminate()
    assert server.wait() == 0
    assert "PRIVATE" not in server.log


def test_stopping_answers_those_who_wait(env: dict[str, str], processes: Processes) -> None:
    env = env | {"TIDEMILL_MODULES": MODULE, "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}"}
    assert script("migrate", env).code == 0
    server, url = console.program(processes, env)
    caller = Caller(url, console.token())
    connection = caller.connect()
    caller.send(connection, poll_path("approve"), {"wait": "60s"})
    assert caller.get("/healthz").status == 200
    assert caller.poll("approve") == []
    server.terminate()
    assert answer(connection).data == {"tasks": []}
    assert server.wait() == 0, server.log
    connection.close()
    assert "console: stopped\n" in server.log


def test_what_it_refuses_to_start_with(env: dict[str, str], tmp_path: Path) -> None:
    for words, parts in (
        ("console --host 203.0.113.7", ("203.0.113.7", "--tls-cert", "--plaintext")),
        ("console --host example.org", ("--plaintext",)),
        ("console --tls-key x", ("belong together",)),
        (f"console --tls-key {tmp_path / 'x'} --tls-cert {tmp_path / 'y'}", ("certificate", "No such file")),
        ("console --host 127.0.0.1 --port 1 --plaintext --host 203.0.113.7", ("cannot be listened on",)),
    ):
        said = script(words, env)
        assert said.code == 1
        assert one_sentence(said, *parts), said


def test_a_database_that_is_away(env: dict[str, str], servers: Any, processes: Processes) -> None:
    _, url = console.program(processes, env)
    caller = Caller(url, console.token("all", "operator"))
    assert caller.post("/api/v1/processes", {"name": "nobody"}).status == 404
    servers.postgres.kill()
    said = wait_until(lambda: _away(caller), 60, "it says so")
    assert (said.error, said.headers["retry-after"]) == (
        ("unavailable", "the database does not answer: try again"),
        "1",
    )
    assert caller.get("/healthz").status == 200


def _away(caller: Caller) -> Any:
    said = caller.post("/api/v1/processes", {"name": "nobody"})
    return said.status == 503 and said
