"""The certificates of the server, read again when their files change: rotation needs no restart."""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from app.errors import SettingsError

log = logging.getLogger(__name__)
_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Files:
    cert: Path
    key: Path
    #: Clients must show a certificate that one of these has signed.
    client_ca: Path | None = None

    def each(self) -> tuple[Path, ...]:
        return (self.cert, self.key) if self.client_ca is None else (self.cert, self.key, self.client_ca)


class Certificates:
    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        try:
            self._stamp = self._now()
            self._first = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError(f"the certificates of the server cannot be used: {_told(error)}") from None

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._first, self.changed, require_client_authentication=self._files.client_ca is not None
        )

    def changed(self) -> Any:
        """Asked at every handshake; None: as before. What cannot be used leaves those that were."""
        with self._lock:
            try:
                stamp = self._now()
                if stamp == self._stamp:
                    return None
                found = self._read()
                # They may have been written while they were read: then the next handshake looks again.
                self._stamp = stamp
            except (OSError, ValueError) as error:
                log.warning("the changed certificates cannot be used, those before stay: %s", _told(error))
                return None
        log.info("certificates were read again")
        return found

    def _now(self) -> _Stamp:
        found = (path.stat() for path in self._files.each())
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        cert, key, *roots = (path.read_bytes() for path in self._files.each())
        self._check()
        root = roots[0] if roots else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], root)

    def _check(self) -> None:
        """gRPC takes what it is given, and then refuses every handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A key that asks for a password would ask it of the terminal.
        context.load_cert_chain(self._files.cert, self._files.key, password="")
        if self._files.client_ca is not None:
            context.load_verify_locations(self._files.client_ca)


def _told(error: Exception) -> str:
    """Of OpenSSL, its reason; of the system, the path too."""
    if isinstance(error, ssl.SSLError):
        return f"the certificate, its key or the CA is none, or they do not belong together ({error.reason})"
    return str(error)
