"""The certificates of the server, read again when their files change: rotation needs no restart."""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from app.certificates import load, stamp, told
from app.errors import SettingsError

log = logging.getLogger(__name__)
_WRONG = "the certificate, its key or the CA is none, or they do not belong together"


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
            self._stamp = stamp(files.each())
            self._first = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError(f"the certificates of the server cannot be used: {told(error, _WRONG)}") from None

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._first, self.changed, require_client_authentication=self._files.client_ca is not None
        )

    def changed(self) -> Any:
        """Asked at every handshake; None: as before. What cannot be used leaves those that were."""
        with self._lock:
            try:
                now = stamp(self._files.each())
                if now == self._stamp:
                    return None
                found = self._read()
                # They may have been written while they were read: then the next handshake looks again.
                self._stamp = now
            except (OSError, ValueError) as error:
                log.warning("the changed certificates cannot be used, those before stay: %s", told(error, _WRONG))
                return None
        log.info("certificates were read again")
        return found

    def _read(self) -> grpc.ServerCertificateConfiguration:
        cert, key, *roots = (path.read_bytes() for path in self._files.each())
        self._check()
        root = roots[0] if roots else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], root)

    def _check(self) -> None:
        """gRPC takes what it is given, and then refuses every handshake."""
        context = load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._files.cert, self._files.key)
        if self._files.client_ca is not None:
            context.load_verify_locations(self._files.client_ca)
