"""Which addresses reach this machine alone. Pure."""

from __future__ import annotations

import ipaddress

from app.errors import SettingsError


def only_here(host: str) -> bool:
    """Whether what is sent there, or listens there, stays on this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_open(host: str, address: str) -> None:
    """Of a server that neither encrypts nor was told that something else does."""
    if not only_here(host):
        raise SettingsError(
            f"{address} can be reached from other machines: give --tls-cert and --tls-key, or say --plaintext "
            "where something in front of this server encrypts"
        )
