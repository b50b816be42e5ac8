"""The certificate of the server, read again when its files change: rotation needs no restart."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from app.errors import SettingsError

log = logging.getLogger(__name__)


class Certificates:
    def __init__(self, cert: Path, key: Path) -> None:
        self._files = (cert, key)
        try:
            self._stamp = self._now()
            self.context = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError(f"the certificate of the server cannot be used: {_told(error)}") from None

    def look(self) -> None:
        """What has changed counts for new connections; what cannot be used leaves what was."""
        try:
            if (stamp := self._now()) == self._stamp:
                return
            # Into another one first: half of a change would spoil the one that serves.
            self._read()
            self.context.load_cert_chain(*self._files, password="")
        except (OSError, ValueError) as error:
            log.warning("the changed certificate cannot be used, the one before stays: %s", _told(error))
        else:
            log.info("the certificate was read again")
        self._stamp = stamp

    def _now(self) -> tuple[tuple[int, int, int], ...]:
        found = (path.stat() for path in self._files)
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        # A key that asks for a password would ask it of the terminal.
        context.load_cert_chain(*self._files, password="")
        return context


def _told(error: Exception) -> str:
    """Of OpenSSL, its reason; of the system, the path too."""
    if isinstance(error, ssl.SSLError):
        return f"it is none, or its key does not belong to it ({error.reason})"
    return str(error)
