"""A service in which stages live, in a process of its own; and stages of it that a test declares.

`service.behaves(process={"*": {"set": {"status": "done"}}})` says what it answers: see `tests.kit.remote_server`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from stages.definition import Definition
from stages.remote import asks, client
from stages.remote.declaring import declare
from stages.remote.service import Remote
from tests.kit.process import ROOT, Process, Processes
from tests.kit.remote_server import BEHAVIOUR, CALLS, CERTIFICATE, KEY, TOKEN

MODULE = "tests.kit.remote_server"


@dataclass
class Service:
    processes: Processes
    directory: Path
    port: int = 0
    process: Process | None = None
    made: list[Remote] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Service:
        """Also again, on the same port; what it was called for is kept."""
        self.directory.mkdir(exist_ok=True)
        self.port = self.port or free_port()
        if not (self.directory / BEHAVIOUR).exists():
            self.behaves()
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", MODULE, str(self.directory), str(self.port)]
        self.process = self.processes.start(command, env, "service")
        self.process.wait_for("the service runs", 60)
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()

    def behaves(self, **ways: Any) -> None:
        """From the next call on, whatever it did before."""
        new = self.directory / f"{BEHAVIOUR}.new"
        new.write_text(json.dumps(ways))
        new.replace(self.directory / BEHAVIOUR)

    def calls(self, method: str | None = None) -> list[dict[str, Any]]:
        path = self.directory / CALLS
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [each for each in found if each["ids"] and method in (None, each["method"])]

    def ids(self, method: str) -> list[str]:
        return [name for call in self.calls(method) for name in call["ids"]]

    def forget(self) -> Service:
        """As if it had just been started."""
        asks._refusals.clear()
        self.behaves()
        (self.directory / CALLS).unlink(missing_ok=True)
        self.end()
        return self

    def wants_token(self, token: str) -> None:
        (self.directory / TOKEN).write_text(token)

    def with_tls(self) -> Path:
        """Before it starts; its certificate, which is its own authority."""
        self.directory.mkdir(exist_ok=True)
        certificate, key = certified()
        (self.directory / CERTIFICATE).write_bytes(certificate)
        (self.directory / KEY).write_bytes(key)
        return self.directory / CERTIFICATE

    def remote(self, name: str = "score", kind: str = "offer", **more: Any) -> Remote:
        values: dict[str, Any] = {
            "source": "remote.toml",
            "kind": kind,
            "name": name,
            "addresses": (self.address,),
            "watches": None,
            "rate_limit": None,
            "max_parallel": 2,
            "batch": 100,
            "time_limit": timedelta(seconds=10),
            "max_attempts": 10,
            "asks": True,
            "saved": False,
            "message": None,
            "tls": None,
            "token_file": None,
            "max_message": 16 * 1024**2,
        }
        made = Remote(**values | more)
        self.made.append(made)
        return made

    def stage(self, name: str = "score", **more: Any) -> Definition:
        """Declared, as if it stood in the file."""
        return declare(self.remote(name, **more))[0]

    def end(self) -> None:
        for remote in self.made:
            if (found := client._clients.pop(remote, None)) is not None:
                found.close()


@contextmanager
def running(directory: Path) -> Iterator[Service]:
    """One for many tests: each begins with `forget`."""
    processes = Processes(directory)
    found = Service(processes, directory / "service")
    try:
        yield found.start()
    finally:
        found.end()
        processes.end()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def certified(name: str = "scoring.example") -> tuple[bytes, bytes]:
    """A certificate for this name and this machine, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding, none = serialization.Encoding.PEM, serialization.NoEncryption()
    own = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, none)
    return certificate.public_bytes(encoding), own
