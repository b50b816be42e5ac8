"""The services beside our own: health, open to all and so bounded in what it takes; reflection, for who has a token."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from app.errors import BadRequest
from app.rpc import status
from app.rpc.calls import LONGEST, Calls, refuse
from app.rpc.overseer import Overseer
from app.rpc.room import Room, is_full
from app.tokens import Action

HEALTH, REFLECTION = "grpc.health.v1.Health", reflection.SERVICE_NAME
#: For a question of some bytes.
SECONDS = 5.0
#: Threads for checks; and for those who watch, of which each takes one.
CHECKERS, WATCHERS, SPARE = 2, 10, 2
#: Checks at once, with those that wait. Of all calls, checks and watches may be a quarter each.
CHECKS, SHARE = 10, 4
LOOK_SECONDS = 0.5
# A number, of a type that the stubs do not name.
_Status = Any


class Health:
    """It says whether this process serves, not whether the database does: see docs/howto/use-rpc.md.

    That of `grpc_health` locks itself up for good when a watcher hangs up in the moment in which the server leaves.
    """

    def __init__(self, calls: Calls, services: Sequence[str], max_calls: int) -> None:
        self._calls = calls
        self._services = frozenset(("", *services))
        self._leaving = threading.Event()
        self._watchers = threading.Semaphore(WATCHERS)
        # Whoever floods these takes no thread and no place from those who have a token.
        share = max(1, max_calls // SHARE)
        self._check_pool = Room(CHECKERS, min(CHECKS, share), "tidemill-health")
        self._watch_pool = Room(WATCHERS + SPARE, min(WATCHERS + SPARE, share), "tidemill-watch")

    def leave(self) -> None:
        self._leaving.set()

    def close(self) -> None:
        self._check_pool.shutdown(wait=False)
        self._watch_pool.shutdown(wait=False)

    def handler(self) -> grpc.GenericRpcHandler:
        def check(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            service = self._asked(requests, context)
            if service not in self._services:
                context.abort(StatusCode.NOT_FOUND, "there is no such service")
            return _serialized(HealthCheckResponse(status=self._status(service)))

        def watch(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[HealthCheckResponse]:
            return self._watched(self._asked(requests, context), context)

        # How gRPC is told.
        vars(check).update(experimental_thread_pool=self._check_pool)
        vars(watch).update(experimental_thread_pool=self._watch_pool)
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Check": grpc.stream_unary_rpc_method_handler(check),
            "Watch": grpc.stream_stream_rpc_method_handler(watch, response_serializer=_serialized),
        }
        return grpc.method_handlers_generic_handler(HEALTH, handlers)

    def _asked(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> str:
        if is_full():
            context.abort(StatusCode.RESOURCE_EXHAUSTED, "the health service has too many calls: try again")
        try:
            return self._calls.message(HealthCheckRequest, requests, context, SECONDS).service
        except BadRequest as error:
            told = status.of(error)
        return refuse(context, told)

    def _status(self, service: str) -> _Status:
        if service not in self._services:
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.NOT_SERVING if self._leaving.is_set() else HealthCheckResponse.SERVING

    def _watched(self, service: str, context: grpc.ServicerContext) -> Iterator[HealthCheckResponse]:
        if not self._watchers.acquire(blocking=False):
            context.abort(StatusCode.RESOURCE_EXHAUSTED, f"{WATCHERS} watch already, which is the most: use Check")
        if not context.add_callback(self._watchers.release):
            self._watchers.release()
        return self._told(service, context)

    def _told(self, service: str, context: grpc.ServicerContext) -> Iterator[HealthCheckResponse]:
        """What it is, and what it becomes: there is one change only."""
        before = self._status(service)
        yield HealthCheckResponse(status=before)
        while context.is_active() and not self._leaving.wait(LOOK_SECONDS):
            pass
        if (now := self._status(service)) != before:
            yield HealthCheckResponse(status=now)


def _serialized(response: HealthCheckResponse) -> bytes:
    return response.SerializeToString()


def reflecting(calls: Calls, overseer: Overseer, services: Sequence[str]) -> grpc.GenericRpcHandler:
    servicer = reflection.ReflectionServicer([*services, HEALTH, REFLECTION])

    def reflect(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
        calls.admit(f"{REFLECTION}/ServerReflectionInfo", Action.READ, context)
        # It holds a thread.
        overseer.follow(context, LONGEST)
        found: Iterator[Any] = servicer.ServerReflectionInfo(_asked(requests, context), context)
        return found

    handler: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(
        reflect, response_serializer=_serialized
    )
    return grpc.method_handlers_generic_handler(REFLECTION, {"ServerReflectionInfo": handler})


def _asked(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[ServerReflectionRequest]:
    for data in requests:
        try:
            request = ServerReflectionRequest.FromString(data)
        except DecodeError:
            context.abort(StatusCode.INVALID_ARGUMENT, "the message cannot be read as a ServerReflectionRequest")
        yield request
