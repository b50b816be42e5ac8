"""The certificate of the server, read again when its files change: rotation needs no restart."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from app.certificates import Stamp, load, stamp, told
from app.errors import SettingsError

log = logging.getLogger(__name__)

_WRONG = "it is none, or its key does not belong to it"


class Certificates:
    def __init__(self, cert: Path, key: Path) -> None:
        self._files = (cert, key)
        try:
            self._stamp = stamp(self._files)
            self.context = self._read()
        except (OSError, ValueError) as error:
            raise SettingsError(f"the certificate of the server cannot be used: {told(error, _WRONG)}") from None

    def look(self) -> None:
        """What has changed counts for new connections; what cannot be used leaves what was."""
        now: Stamp = ()  # of files that are not there
        try:
            if (now := stamp(self._files)) == self._stamp:
                return
            # Into another one first: half of a change would spoil the one that serves.
            self._read()
            load(self.context, *self._files)
        except (OSError, ValueError) as error:
            # Each change is told of once, and that there are none too.
            if now != self._stamp:
                log.warning("the changed certificate cannot be used, the one before stays: %s", told(error, _WRONG))
        else:
            log.info("the certificate was read again")
        self._stamp = now

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        return load(context, *self._files)
