"""The server around the stage: who may call it, over what, how much at once, and how it ends."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer

from app.proto.tidemill.v1.stage_pb2_grpc import add_StageServicer_to_server
from remote_python.service import Score

SERVICE = "tidemill.v1.Stage"
#: Whoever watches over the service asks without a token.
OPEN = "/grpc.health.v1.Health/"
THREADS = 8


@dataclass(frozen=True)
class Tls:
    certificate: bytes
    key: bytes
    #: Who signs the certificates of callers; None: they need none.
    clients: bytes | None


class WithToken(grpc.ServerInterceptor):
    """Lets in whoever sends `authorization: Bearer <token>`."""

    def __init__(self, token: str) -> None:
        self._wanted = f"Bearer {token}".encode()
        self._refusal: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(_refuse)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        given = [value for name, value in handler_call_details.invocation_metadata or () if name == "authorization"]
        first = given[0] if given else ""
        allowed = hmac.compare_digest(first if isinstance(first, bytes) else first.encode(), self._wanted)
        if allowed or handler_call_details.method.startswith(OPEN):
            return continuation(handler_call_details)
        return self._refusal


def _refuse(_request: Any, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "send authorization: Bearer and the token of this service")


class Serving:
    def __init__(self, listen: str, token: str, tls: Tls | None, most_bytes: int) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(THREADS, thread_name_prefix="call"),
            interceptors=[WithToken(token)],
            options=[
                # A batch may be larger than the 4 MiB that gRPC would take.
                ("grpc.max_receive_message_length", most_bytes),
                ("grpc.max_send_message_length", most_bytes),
                # A second one on this port shall fail, not take half of the calls.
                ("grpc.so_reuseport", 0),
            ],
        )
        add_StageServicer_to_server(Score(), self._server)  # type: ignore[no-untyped-call]
        self._health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        host = listen.rpartition(":")[0]
        port = (
            self._server.add_insecure_port(listen)
            if tls is None
            else self._server.add_secure_port(listen, _credentials(tls))
        )
        self.address = f"{host}:{port}"

    def start(self) -> None:
        self._server.start()
        for service in ("", SERVICE):
            self._health.set(service, health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace: float) -> None:
        """New calls are refused; those at work may end."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace).wait()


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)], root_certificates=tls.clients, require_client_auth=tls.clients is not None
    )
