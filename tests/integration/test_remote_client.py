"""Calls of a service: TLS, tokens, several addresses, messages, `Saved` (S18)."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.errors import BadRequest, RemoteFailed
from app.jobs.model import JOB
from app.proto.tidemill.v1 import stage_pb2
from stages import queue
from stages.events import hook_of
from stages.remote.client import client_of
from stages.remote.saving import remote_saved
from stages.remote.service import Remote, Tls
from stages.state import Stored
from tests.kit.process import Processes
from tests.kit.remote import Service, free_port
from tests.kit.remote_messages import Offer as OfferMessage
from tests.kit.stages_rows import Stages, entity, execute, visit, waiting, world

PING = stage_pb2.ProcessBatchRequest(stage="score")
ONE = stage_pb2.ProcessBatchRequest(
    stage="score", items=[stage_pb2.ProcessBatchRequest.Item(entity=stage_pb2.Entity(kind="offer", id="a", json="{}"))]
)


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def call(remote: Remote, method: str = "ProcessBatch", request: Any = ONE, seconds: float = 20.0, **more: Any) -> Any:
    return client_of(remote).call(method, request, seconds, **more)


def failed(remote: Remote, **more: Any) -> RemoteFailed:
    with pytest.raises(RemoteFailed) as raised:
        call(remote, **more)
    return raised.value


def test_an_empty_batch_asks_whether_it_is_there(service: Service) -> None:
    assert list(call(service.remote(), request=PING).answers) == []


def test_a_failure_says_who_and_what(service: Service) -> None:
    service.behaves(status={"ProcessBatch": "INTERNAL"})
    error = failed(service.remote())
    assert error.status == "INTERNAL"
    assert str(error) == f"offer.score at {service.address} answered INTERNAL: ProcessBatch is not for you"


def test_its_words_are_bounded(service: Service) -> None:
    service.behaves(process={"*": {"abort": "INTERNAL", "why": "x\n" * 5000}})
    assert len(str(failed(service.remote()))) < 500


def test_calls_go_round(processes: Processes, tmp_path: Path) -> None:
    services = [Service(processes, tmp_path / name).start() for name in ("one", "two")]
    remote = services[0].remote(addresses=tuple(each.address for each in services))
    for _ in range(6):
        call(remote)
    assert [len(each.calls()) for each in services] == [3, 3]
    services[0].kill()
    for _ in range(6):
        call(remote)
    assert len(services[1].calls()) == 9, "each of them was answered, by the other if need be"
    services[0].end()


def test_only_pure_calls_are_made_again_and_only_when_nobody_was_there(service: Service) -> None:
    for method, status, pure, times in (
        ("ProcessBatch", "UNAVAILABLE", True, 2),
        ("ProcessBatch", "INTERNAL", True, 1),
        ("ProcessBatch", "DEADLINE_EXCEEDED", True, 1),
        ("ProcessBatch", "UNAVAILABLE", False, 1),
    ):
        service.forget().behaves(status={method: status})
        failed(service.remote(), pure=pure)
        assert len(service.calls()) == times, (status, pure)


def test_a_deadline_is_that_of_the_call(service: Service) -> None:
    service.behaves(hang=["ProcessBatch"])
    assert failed(service.remote(), seconds=0.2).status == "DEADLINE_EXCEEDED"


def test_nobody_there(service: Service) -> None:
    remote = service.remote(addresses=(f"127.0.0.1:{free_port()}",))
    assert failed(remote).status == "UNAVAILABLE"


def test_tls_and_a_token(processes: Processes, tmp_path: Path) -> None:
    service = Service(processes, tmp_path / "service")
    certificate = service.with_tls()
    service.wants_token("first-secret")
    service.start()
    token = tmp_path / "token"
    token.write_text("wrong-secret\n")
    tls = Tls(ca_file=certificate)
    remote = service.remote(tls=tls, token_file=token)
    error = failed(remote)
    assert error.status == "UNAUTHENTICATED"
    assert "secret" not in str(error)
    token.write_text("first-secret\n")
    os.utime(token, ns=(1, 1))
    call(remote)
    # Renewed while everything runs.
    service.wants_token("second-secret")
    token.write_text("second-secret\n")
    call(remote)
    assert [each["authorization"] for each in service.calls()][-1] == "Bearer second-secret"
    token.unlink()
    assert failed(remote).status == "UNAUTHENTICATED"
    token.write_text("two\nlines")
    assert "must hold one line" in str(failed(remote))
    for other in (Tls(), Tls(ca_file=certificate, server_name="another.example"), None):
        assert failed(service.remote(tls=other), seconds=3.0).status in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    named = service.remote(tls=Tls(ca_file=certificate, server_name="scoring.example"), token_file=token)
    token.write_text("second-secret")
    call(named)
    service.end()


def test_what_a_service_repeats_of_the_token_is_left_out(service: Service, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("because")
    service.behaves(process={"*": {"abort": "INTERNAL", "why": "nothing"}})
    assert "because" not in str(failed(service.remote(token_file=token)))


def test_a_message_that_is_too_large_never_leaves(service: Service) -> None:
    large = stage_pb2.ProcessBatchRequest(stage="x" * 200_000)
    error = failed(service.remote(max_message=100_000), request=large)
    assert error.status == "RESOURCE_EXHAUSTED"


# Entities as messages


def test_entities_may_be_messages(stages: Stages, service: Service) -> None:
    service.stage(message=OfferMessage)
    stages.sync()
    # Field 3, the status, once more: the last one counts.
    service.behaves(process={"*": {"set": "1a0464" + b"one".hex()}})
    stages.put("a", price=5)
    for name in ("system", "score.ask", "score"):
        stages.serve(name)
    assert service.calls("ProcessBatch")[0]["entities"][0]["type_url"] == "type.googleapis.com/kit.Offer"
    assert (entity("a").status, entity("a").price, entity("a").version) == ("done", 5, 2)
    assert waiting() == []


def test_what_is_no_message_fails_by_itself(stages: Stages, service: Service) -> None:
    service.stage(message=OfferMessage)
    stages.sync()
    service.behaves(process={"*": {"set": "1aff"}})
    stages.put("a", price=5)
    for name in ("system", "score.ask", "score"):
        stages.serve(name)
    assert "cannot be read as kit.Offer" in visit("a", "score").error


# Saved


def test_saved_is_called_once(stages: Stages, service: Service) -> None:
    # S14
    made = service.stage(saved=True)
    remote_saved(made, "a", 17, 5, '{"id":"a"}', Stored("example.com/x", b"\x01", 3))
    (found,) = service.calls("Saved")
    assert (found["ids"], found["versions"], found["sequence"], found["state_version"]) == (["a"], [5], 17, 3)
    service.behaves(status={"Saved": "UNAVAILABLE"})
    with pytest.raises(RemoteFailed, match="UNAVAILABLE"):
        remote_saved(made, "a", 18, 6, '{"id":"a"}', None)
    assert len(service.calls("Saved")) == 2, "it may have side effects"


def test_a_save_by_a_visit_calls_saved(stages: Stages, service: Service) -> None:
    # S14: a job of the same transaction
    made = service.stage(saved=True)
    stages.sync()
    service.behaves(process={"*": {"set": {"status": "done"}, "count": True}})
    stages.put("a", price=5)
    for name in ("system", "score.ask", "score"):
        stages.serve(name)
    (job,) = execute(sa.select(JOB.c.task, JOB.c.queue, JOB.c.args))
    assert (job.task, job.queue) == (f"{made.task}.saved", "saved.offer.score")
    kind, entity_id, sequence = job.args if isinstance(job.args, list) else json.loads(job.args)
    hook_of(made).function(kind, entity_id, sequence)
    (found,) = service.calls("Saved")
    assert (found["ids"], found["versions"], found["sequence"], found["state_version"]) == (["a"], [2], sequence, 1)
    assert found["entities"][0]["status"] == "done"


def test_a_failure_can_be_carried_between_processes() -> None:
    error = RemoteFailed("offer.score", "there:1", "INTERNAL", "why")
    assert str(copy.copy(error)) == str(error) == "offer.score at there:1 answered INTERNAL: why"


def test_saved_of_a_stage_that_has_none(stages: Stages, service: Service) -> None:
    made = service.stage(time_limit=timedelta(seconds=5))
    with pytest.raises(BadRequest, match="saved = true"):
        remote_saved(made, "a", 17, 5, "{}", None)
    assert queue.peek("offer.score") == []
