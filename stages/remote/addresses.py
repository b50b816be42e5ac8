"""The addresses of services, as gRPC writes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from app.hosts import only_here

_PLAIN = re.compile(r"(?:dns:(?://[^/]*/)?)?(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+):(?P<port>\d{1,5})")
_UNIX = re.compile(r"unix(?:-abstract)?:.+")


def checked_addresses(addresses: Sequence[str]) -> None:
    """`ValueError` for what is none, or stands there twice."""
    for each in addresses:
        found = _PLAIN.fullmatch(each)
        if _UNIX.fullmatch(each) or (found and 0 < int(found["port"]) < 65_536):
            continue
        raise ValueError(f"{each!r:.100} is no address: write 'host:port', 'dns:///host:port' or 'unix:/path'")
    if twice := [each for number, each in enumerate(addresses) if each in addresses[:number]]:
        raise ValueError(f"{twice[0]!r} stands there twice")


def is_here(address: str) -> bool:
    """Whether what is sent there never leaves this machine."""
    found = _PLAIN.fullmatch(address)
    return found is None or only_here(found["host"])
