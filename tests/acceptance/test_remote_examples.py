"""The services of `examples/remote_python` and `examples/remote_node`, as any client of gRPC sees them (S18)."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import StringValue
from grpc_health.v1 import health_pb2, health_pb2_grpc

from app.proto.tidemill.v1 import stage_pb2 as pb
from app.proto.tidemill.v1.stage_pb2_grpc import StageStub
from tests.kit.certificates import Authority
from tests.kit.process import ROOT, Process, Processes

EXAMPLES = ROOT / "examples"
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
WEEK = timedelta(weeks=1)
TOKEN = "a word that nobody guesses"
MOST_BYTES = 500_000
NO_REGISTRY = re.compile(r"ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|E40[134]|network")


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its packages."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("the example in JavaScript needs node and npm")
    folder = tmp_path_factory.mktemp("node") / "remote_node"
    shutil.copytree(EXAMPLES / "remote_node", folder, ignore=shutil.ignore_patterns("node_modules"))
    words = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    run = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=100)
    if run.returncode != 0 and NO_REGISTRY.search(run.stderr):
        pytest.skip(f"npm does not reach its registry: {run.stderr.strip()[-300:]}")
    assert run.returncode == 0, run.stderr
    return folder


@dataclass
class Services:
    """Starts one of either language."""

    command: list[str]
    processes: Processes
    token_file: Path

    def start(self, *words: str) -> Process:
        self.token_file.write_text(f"{TOKEN}\n")
        env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, EXAMPLES)))}
        command = [*self.command, "--listen", "127.0.0.1:0", "--token-file", str(self.token_file), *words]
        return self.processes.start(command, env, "service")


@pytest.fixture(scope="module", params=["python", "node"])
def services(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    command = [sys.executable, "-m", "remote_python"]
    if request.param == "node":
        folder = request.getfixturevalue("node")
        command = ["node", str(folder / "server.mjs"), "--protos", str(ROOT / "app" / "proto")]
    folder = tmp_path_factory.mktemp("services")
    found = Services(command, Processes(folder), folder / "token")
    yield found
    for each in found.processes.started:
        each.end()


def port_of(process: Process) -> str:
    log = process.wait_for(r"listening on 127.0.0.1:[1-9]\d+\n", 300)
    return str(re.findall(r"listening on 127.0.0.1:(\d+)\n", log)[-1])


@dataclass
class Client:
    process: Process
    channel: grpc.Channel

    def call(self, method: str, request: Any, token: str | None = TOKEN) -> Any:
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        stub: Any = StageStub(self.channel)  # type: ignore[no-untyped-call]
        return getattr(stub, method)(request, metadata=metadata, timeout=60, wait_for_ready=True)

    def refused(self, method: str, request: Any, token: str | None = TOKEN) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as error:
            self.call(method, request, token)
        found: Any = error.value
        return found.code(), found.details()


@pytest.fixture(scope="module")
def service(services: Services) -> Iterator[Client]:
    process = services.start("--most-bytes", str(MOST_BYTES))
    with grpc.insecure_channel(f"127.0.0.1:{port_of(process)}") as channel:
        yield Client(process, channel)


def offer(**values: Any) -> dict[str, Any]:
    """A row, as Postgres writes it."""
    published = NOW - WEEK - timedelta(days=1)
    row = {
        "id": "o-1",
        "status": "on air",
        "published_at": published.isoformat(),
        "photos": [{"url": "1", "stored": "x"}, {"url": "2"}],
        "price": 9_000,
        "predicted_price": 9_500,
        "quality": None,
        "version": 3,
    }
    return row | values


def entity(row: dict[str, Any] | None = None, entity_id: str = "o-1") -> pb.Entity:
    return pb.Entity(kind="offer", id=entity_id, version=3, json=json.dumps(offer() if row is None else row))


def state(**values: Any) -> pb.State:
    kept = {"photos": 1, "fair": True, "weeks": 1} | values
    packed = AnyMessage()
    packed.Pack(pb.JsonState(model="Rated", json=json.dumps(kept)))
    return pb.State(value=packed, version=1)


def asked(row: dict[str, Any] | None = None, kept: pb.State | None = None) -> pb.ShouldProcessRequest:
    return pb.ShouldProcessRequest(stage="score", entity=entity(row), state=kept, now=NOW)


def visited(row: dict[str, Any] | None = None, kept: pb.State | None = None) -> pb.ProcessRequest:
    return pb.ProcessRequest(stage="score", entity=entity(row), state=kept, now=NOW)


def kept_by(response: pb.ProcessResponse) -> Any:
    found = pb.JsonState()
    assert response.state.Unpack(found)
    assert response.state.type_url == "type.googleapis.com/tidemill.v1.JsonState"
    return json.loads(found.json)


def test_it_says_what_it_wants(service: Client) -> None:
    for row, kept, wanted in [
        (None, None, True),
        (None, pb.State(), True),
        (None, state(photos=2), True),
        (offer(status="draft"), None, False),
        (offer(status="draft"), state(), True),
        (offer(published_at=None), state(weeks=0), False),
    ]:
        answer = service.call("ShouldProcess", asked(row, kept))
        assert (answer.WhichOneof("answer"), answer.wanted) == ("wanted", wanted), row
    later = service.call("ShouldProcess", asked(None, state()))
    assert later.WhichOneof("answer") == "at"
    assert later.at.ToDatetime(tzinfo=UTC) == NOW + timedelta(days=6)


def test_it_patches_keeps_its_state_and_sets_its_timer(service: Client) -> None:
    made = service.call("Process", visited())
    assert json.loads(made.patch.json) == {"quality": 68}
    assert list(made.patch.reads) == ["status", "published_at", "photos", "price", "predicted_price"]
    assert kept_by(made) == {"photos": 1, "fair": True, "weeks": 1}
    assert made.at.ToDatetime(tzinfo=UTC) == NOW + timedelta(days=6)


def test_a_visit_that_is_needless_changes_nothing(service: Client) -> None:
    made = service.call("Process", visited(offer(quality=68), state()))
    assert (made.WhichOneof("outcome"), made.WhichOneof("new_state")) == ("untouched", None)
    assert made.at.ToDatetime(tzinfo=UTC) == NOW + timedelta(days=6), "the timer is set anew"
    assert service.call("Process", visited()) == service.call("Process", visited()), "it is pure"
    mended = service.call("Process", visited(offer(quality=3), state()))
    assert (json.loads(mended.patch.json), mended.WhichOneof("new_state")) == ({"quality": 68}, None)


def test_an_offer_that_is_not_on_air_is_forgotten(service: Client) -> None:
    made = service.call("Process", visited(offer(status="taken down", quality=68), state()))
    assert json.loads(made.patch.json) == {"quality": None}
    assert (made.no_state, made.WhichOneof("timer")) == (True, None)
    again = service.call("Process", visited(offer(status="taken down")))
    assert again == pb.ProcessResponse(untouched=pb.ProcessResponse.Untouched())


@pytest.mark.parametrize("weeks", [0, 5, 19, 20, 30])
@pytest.mark.parametrize("photos", [0, 3, 6])
def test_a_rating_is_the_same_in_every_language(service: Client, weeks: int, photos: int) -> None:
    published = NOW - weeks * WEEK - timedelta(microseconds=1500)
    row = offer(
        published_at=published.isoformat(), photos=[{"url": "1", "stored": "x"}] * photos, predicted_price=weeks or None
    )
    made = service.call("Process", visited(row))
    counted = min(20, weeks)
    assert json.loads(made.patch.json) == {"quality": 40 + 10 * min(4, photos) - 2 * counted}
    assert kept_by(made) == {"photos": min(4, photos), "fair": False, "weeks": counted}
    assert made.HasField("at") is (weeks < 20)


@pytest.mark.parametrize("method", ["ShouldProcess", "Process"])
def test_in_a_batch_each_has_its_answer_and_a_bad_one_fails_alone(service: Client, method: str) -> None:
    request: Any = {"ShouldProcess": pb.ShouldProcessBatchRequest, "Process": pb.ProcessBatchRequest}[method]
    foreign = AnyMessage()
    foreign.Pack(StringValue(value="x"))
    items = [
        request.Item(entity=entity(entity_id="good")),
        request.Item(entity=pb.Entity(kind="offer", id="no json", json="{")),
        request.Item(entity=pb.Entity(kind="offer", id="no body")),
        request.Item(entity=entity({}, "no columns")),
        request.Item(entity=entity(entity_id="no state of mine"), state=pb.State(value=foreign, version=1)),
        request.Item(entity=entity(entity_id="Łódź"), state=state()),
    ]
    found = service.call(f"{method}Batch", request(stage="score", items=items, now=NOW))
    assert [each.id for each in found.answers] == [each.entity.id for each in items]
    results = {each.id: each.WhichOneof("result") for each in found.answers}
    assert [name for name, result in results.items() if result == "answer"] == ["good", "Łódź"]
    said = {each.id: each.failure.message for each in found.answers}
    assert "a state of this service is a tidemill.v1.JsonState, not a google" in said["no state of mine"]
    assert "comes without its columns as JSON" in said["no body"]
    assert "has no column" in said["no columns"]
    alone = service.call(method, (asked if method == "ShouldProcess" else visited)())
    assert found.answers[0].answer == alone


def test_a_batch_of_none_is_answered(service: Client) -> None:
    assert service.call("ShouldProcessBatch", pb.ShouldProcessBatchRequest()) == pb.ShouldProcessBatchResponse()
    assert service.call("ProcessBatch", pb.ProcessBatchRequest(stage="x")) == pb.ProcessBatchResponse()


def test_what_was_saved_is_said_once_for_each_sequence(service: Client) -> None:
    for sequence in (2**53 + 1, 2**53 + 1, 2**53, 2**53 + 2):
        request = pb.SavedRequest(stage="score", entity=entity(offer(quality=68)), state=state(), sequence=sequence)
        assert service.call("Saved", request) == pb.SavedResponse()
    service.process.wait_for(f"at {2**53 + 2}: quality 68\n")
    said = re.findall(r"saved offer o-1 at (\d+): quality 68", service.process.log)
    assert said == [str(2**53 + 1), str(2**53 + 2)]


@pytest.mark.parametrize("token", [None, "", "another", f"{TOKEN} ", TOKEN[:-1]])
def test_nobody_calls_without_the_token(service: Client, token: str | None) -> None:
    for method, request in (("Process", visited()), ("ProcessBatch", pb.ProcessBatchRequest()), ("Saved", None)):
        code, said = service.refused(method, request or pb.SavedRequest(), token)
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert TOKEN not in said
    assert TOKEN not in service.process.log


def test_its_health_is_told_to_all(service: Client) -> None:
    stub: Any = health_pb2_grpc.HealthStub(service.channel)
    for name in ("", "tidemill.v1.Stage"):
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError):
        stub.Check(health_pb2.HealthCheckRequest(service="another"), timeout=60)


def test_what_it_cannot_do_it_refuses(service: Client) -> None:
    code, said = service.refused("Process", pb.ProcessRequest(stage="rate", entity=entity(), now=NOW))
    assert (code, said) == (grpc.StatusCode.NOT_FOUND, "there is no stage 'rate' here, but score")
    code, said = service.refused("Process", pb.ProcessRequest(stage="score", now=NOW))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "comes without its columns as JSON" in said


def test_a_message_that_is_too_large_is_refused(service: Client) -> None:
    large = offer(photos=[{"url": "x" * MOST_BYTES}])
    assert service.refused("Process", visited(large))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    # And the next one goes through.
    smaller = offer(photos=[{"url": "x" * (MOST_BYTES - 5_000)}])
    assert service.call("Process", visited(smaller)).HasField("patch")


def test_a_batch_is_larger_than_grpc_would_take(services: Services) -> None:
    items = [pb.ProcessBatchRequest.Item(entity=entity(offer(note="x" * 100_000), f"o-{n}")) for n in range(60)]
    with grpc.insecure_channel(f"127.0.0.1:{port_of(services.start())}") as channel:
        client = Client(services.processes.started[-1], channel)
        found = client.call("ProcessBatch", pb.ProcessBatchRequest(stage="score", items=items, now=NOW))
    assert [each.id for each in found.answers] == [each.entity.id for each in items]


def test_it_speaks_tls_with_those_that_have_a_certificate(services: Services, tmp_path: Path) -> None:
    ours, others = Authority("ours"), Authority("others")
    certificate, key = ours.issue("127.0.0.1")
    for name, content in {"certificate": certificate, "key": key, "clients": ours.certificate}.items():
        (tmp_path / name).write_bytes(content)
    words = [word for name in ("certificate", "key", "clients") for word in (f"--tls-{name}", str(tmp_path / name))]
    process = services.start(*words)
    address = f"127.0.0.1:{port_of(process)}"

    def tried(authority: Authority | None) -> grpc.StatusCode | None:
        client_certificate, client_key = (None, None) if authority is None else authority.issue("client")
        credentials = grpc.ssl_channel_credentials(ours.certificate, client_key, client_certificate)
        with grpc.secure_channel(address, credentials) as channel:
            stub: Any = StageStub(channel)  # type: ignore[no-untyped-call]
            try:
                stub.Process(visited(), metadata=[("authorization", f"Bearer {TOKEN}")], timeout=60)
            except grpc.RpcError as error:
                found: Any = error
                return grpc.StatusCode(found.code().value)
        return None

    assert tried(ours) is None
    assert tried(None) == tried(others) == grpc.StatusCode.UNAVAILABLE


def test_it_ends_when_it_is_asked_to(services: Services) -> None:
    process = services.start()
    with grpc.insecure_channel(f"127.0.0.1:{port_of(process)}") as channel:
        client = Client(process, channel)
        assert client.call("Process", visited()).HasField("patch")
        process.terminate()
        assert process.wait() == 0
    assert process.log.endswith("ended\n")


def test_it_says_what_is_wrong_with_its_options(services: Services, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for words, said in [
            (["--token-file", str(tmp_path / "empty")], "is empty: write a token into it"),
            (["--tls-key", str(tmp_path / "key")], "belong together"),
            (["--listen", address], f"{address} cannot be listened on"),
        ]:
            process = services.start(*words)
            assert process.wait() != 0
            assert said in process.log
            assert TOKEN not in process.log
