"""The certificate of a server: how its files are read, and that they have changed."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

#: Of files, what differs when one of them was written again.
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]


def stamp(files: Iterable[Path]) -> Stamp:
    found = (path.stat() for path in files)
    return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)


def load(context: ssl.SSLContext, cert: Path, key: Path) -> ssl.SSLContext:
    # A key that asks for a password would ask it of the terminal.
    context.load_cert_chain(cert, key, password="")
    return context


def told(error: Exception, wrong: str) -> str:
    """Of OpenSSL, its reason after what is `wrong`; of the system, the path too."""
    return f"{wrong} ({error.reason})" if isinstance(error, ssl.SSLError) else str(error)
