"""Probes of the services that listen: console, rpc, Flower; asked on this machine, as their clients would ask."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.health.sign import Sign, broken, well
from app.settings import settings

SECONDS = 5.0
ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}  # noqa: S104 - what is listened on
_AGAIN = "look at its log, and start it again"


def console() -> Iterator[Sign]:
    own = settings()
    host = ANYWHERE.get(own.console_host, own.console_host)
    cert = own.console_tls_cert
    yield _asked("console", host, own.console_port, "/healthz", None if cert is None else _trusting(cert))


def flower(url: str) -> Iterator[Sign]:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    yield _asked("flower", parts.hostname or "127.0.0.1", port, parts.path or "/", tls)


def _asked(name: str, host: str, port: int, path: str, tls: ssl.SSLContext | None) -> Sign:
    # http.client, which no proxy of the environment comes between.
    connection = (
        http.client.HTTPConnection(host, port, timeout=SECONDS)
        if tls is None
        else http.client.HTTPSConnection(host, port, timeout=SECONDS, context=tls)
    )
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return broken(name, f"no answer on {host}:{port}: {_kind(error)}", _AGAIN)
    finally:
        connection.close()
    if status != 200:
        return broken(name, f"{host}:{port}{path} answers with status {status}", _AGAIN)
    return well(name, f"{host}:{port} answers")


def _trusting(cert: Path) -> ssl.SSLContext:
    """This very certificate, whatever its name: it is not made for the address under which we ask."""
    found = ssl.create_default_context(cafile=str(cert))
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    found.check_hostname = False
    return found


def rpc() -> Iterator[Sign]:
    """By the health service of gRPC; with TLS, which may ask us for a certificate too, that it shows its own."""
    listen, cert = settings().rpc_listen, settings().rpc_tls_cert
    target = listen if listen.startswith("unix:") else ":".join(_address(listen))
    if cert is None:
        yield _served(target)
        return
    try:
        with _connected(target) as plain, _trusting(cert).wrap_socket(plain):
            yield well("rpc", f"{target} shows its certificate")
    except OSError as error:
        yield broken("rpc", f"no handshake with {target}: {_kind(error)}", _AGAIN)


def _address(listen: str) -> tuple[str, str]:
    host, _, port = listen.rpartition(":")
    found = ANYWHERE.get(host, host)
    return (f"[{found}]" if ":" in found and not found.startswith("[") else found), port


def _connected(target: str) -> socket.socket:
    if target.startswith("unix:"):
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(SECONDS)
        plain.connect(target.removeprefix("unix:"))
        return plain
    host, _, port = target.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), SECONDS)


def _served(target: str) -> Sign:
    import grpc
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
    from grpc_health.v1.health_pb2_grpc import HealthStub

    with grpc.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        try:
            stub: Any = HealthStub(channel)
            answer = stub.Check(HealthCheckRequest(), timeout=SECONDS)
        except grpc.RpcError as error:
            status: Any = getattr(error, "code", lambda: None)()
            return broken("rpc", f"{target} does not answer: {getattr(status, 'name', 'no status')}", _AGAIN)
    if answer.status != HealthCheckResponse.SERVING:
        return broken("rpc", f"{target} says {HealthCheckResponse.ServingStatus.Name(answer.status)}", _AGAIN)
    return well("rpc", f"{target} serves")


def _kind(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
