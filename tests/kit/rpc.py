"""The gRPC server in this process or as a program, and clients of it.

`with serving(threads=4) as address:` serves from here; `client(address, token)` calls. The entities are those of
`tests.kit.stages_world`: a parcel, whose stage `weigh` keeps a number beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import sqlalchemy as sa
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import Int64Value
from grpc import StatusCode
from grpc_health.v1.health_pb2_grpc import HealthStub
from sqlalchemy.engine import Engine

from app import tokens
from app.db import transaction
from app.proto.tidemill.v1.ctl_pb2 import AdvanceRequest, GetRequest
from app.proto.tidemill.v1.ctl_pb2_grpc import CtlStub
from app.proto.tidemill.v1.state_pb2 import ReadStateRequest, UpdateStateRequest
from app.proto.tidemill.v1.state_pb2_grpc import StageStateStub
from app.rpc.server import Options, Server
from stages import sync
from tests.kit import stages_world
from tests.kit.cli import SCRIPT
from tests.kit.process import Process, Processes

SECONDS = 60.0
STATE, CTL = "/tidemill.v1.StageState/", "/tidemill.v1.Ctl/"
METHODS = (f"{STATE}Read", f"{STATE}Update", f"{CTL}Advance", f"{CTL}Get")
PLAIN = Options("127.0.0.1:0", None, False, 4 * 1024 * 1024, 8, 100, 30.0, False)


@contextmanager
def serving(**options: Any) -> Iterator[str]:
    """The address."""
    server = Server(replace(PLAIN, **options))
    try:
        yield server.start()
    finally:
        server.stop(5)


def program(processes: Processes, env: Mapping[str, str], *options: str) -> tuple[Process, str]:
    """`tidemill rpc`, and where it listens."""
    words = [str(SCRIPT), "rpc", "--listen", "127.0.0.1:0", *options]
    process = processes.start(words, {**env, "TIDEMILL_MODULES": stages_world.MODULES}, "rpc")
    log = process.wait_for(r"listening on \S+, with", timeout=60)
    return process, log.partition("listening on ")[2].partition(",")[0]


def token(name: str = "caller", role: str = "operator", *scope: str, lifetime: timedelta | None = None) -> str:
    with transaction() as session:
        return tokens.create(session, name, role, scope or None, lifetime)


def shop(engine: Engine, *ids: str) -> None:
    """The tables of the shop, its stages known, and parcels in them."""
    stages_world.create(engine)
    sync.synchronize()
    with transaction() as session:
        for each in ids:
            session.execute(sa.insert(stages_world.Parcel).values(id=each, size=1))


def state(value: int) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(Int64Value(value=value))
    return packed


def number(packed: AnyMessage) -> int:
    found = Int64Value()
    assert packed.Unpack(found)
    return found.value


def timestamp(moment: datetime) -> Timestamp:
    found = Timestamp()
    found.FromDatetime(moment.astimezone(UTC))
    return found


@dataclass
class Client:
    #: Of gRPC, whose types know less than it can.
    channel: Any
    token: str | None

    @property
    def metadata(self) -> list[tuple[str, str]]:
        return [] if self.token is None else [("authorization", f"Bearer {self.token}")]

    def _call(self, method: Any, request: Message, timeout: float | None) -> Any:
        return method(request, metadata=self.metadata, timeout=timeout)

    def read(self, entity: str, stage: str = "weigh", kind: str = "parcel", timeout: float | None = SECONDS) -> Any:
        request = ReadStateRequest(kind=kind, stage=stage, entity_id=entity)
        return self._call(_states(self.channel).Read, request, timeout)

    def update(
        self,
        entity: str,
        version: int,
        new: AnyMessage | None,
        stage: str = "weigh",
        kind: str = "parcel",
        *,
        visit: bool = False,
        timeout: float | None = SECONDS,
    ) -> int:
        key = {"kind": kind, "stage": stage, "entity_id": entity}
        request = UpdateStateRequest(**key, version=version, state=new, visit=visit)
        return int(self._call(_states(self.channel).Update, request, timeout).version)

    def advance(self, entity: str, timeout: float | None = SECONDS, **values: datetime | Timestamp) -> list[str]:
        given = {name: each if isinstance(each, Timestamp) else timestamp(each) for name, each in values.items()}
        request = AdvanceRequest(entity=entity, parameters=given)
        return list(self._call(_ctl(self.channel).Advance, request, timeout).moved)

    def get(self, entity: str, parameter: str, timeout: float | None = SECONDS) -> Any:
        return self._call(_ctl(self.channel).Get, GetRequest(entity=entity, parameter=parameter), timeout)

    def raw(self, path: str, data: bytes, metadata: Any = None, timeout: float | None = SECONDS) -> bytes:
        """Bytes in, bytes out."""
        call = self.channel.unary_unary(path)
        return bytes(call(data, metadata=self.metadata if metadata is None else metadata, timeout=timeout))


@contextmanager
def client(
    address: str, token: str | None = None, credentials: grpc.ChannelCredentials | None = None
) -> Iterator[Client]:
    # Channels to one address share their connection unless told otherwise, and with it what was agreed upon it.
    own = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    if credentials is None:
        channel = grpc.insecure_channel(address, own)
    else:
        channel = grpc.secure_channel(address, credentials, own)
    with channel:
        yield Client(channel, token)


def _states(channel: Any) -> Any:
    return StageStateStub(channel)  # type: ignore[no-untyped-call]


def _ctl(channel: Any) -> Any:
    return CtlStub(channel)  # type: ignore[no-untyped-call]


def health_of(channel: Any) -> Any:
    return HealthStub(channel)


def refusal(call: Callable[[], object]) -> Any:
    """The error with which a call ends."""
    try:
        found = call()
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"it was not refused: {found!r}")


def code(call: Callable[[], object]) -> StatusCode:
    found: StatusCode = refusal(call).code()
    return found
