"""What is known of a service in which a stage lives. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from google.protobuf.message import Message


@dataclass(frozen=True)
class Tls:
    """None: the certificates that gRPC comes with; no certificate of our own; the name in the address."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None


@dataclass(frozen=True, eq=False)
class Remote:
    """An entry of the file of remote stages; its paths are absolute."""

    #: The file.
    source: str
    kind: str
    name: str
    addresses: tuple[str, ...]
    #: Attributes; None: any change counts.
    watches: tuple[str, ...] | None
    rate_limit: str | None
    max_parallel: int | None
    batch: int
    #: Of each call.
    time_limit: timedelta
    max_attempts: int
    #: Whether it is asked by `ShouldProcess`; otherwise it wants every change.
    asks: bool
    #: Whether it hears of what was saved.
    saved: bool
    #: Its class of entities; None: they are sent as JSON.
    message: type[Message] | None
    #: None: plain text.
    tls: Tls | None
    token_file: Path | None
    #: In bytes, both ways.
    max_message: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.name} of {self.source}"

    @property
    def whole_name(self) -> str:
        return f"{self.kind}.{self.name}"
