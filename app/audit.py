"""Who changed what by hand: written in the transaction of the change."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapped, Session, mapped_column

from app.db import Model


class Audit(Model):
    __tablename__ = "audit"
    __table_args__ = (sa.Index("audit_subject", "subject", "id"), sa.Index("audit_actor", "actor", "id"))

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    reason: Mapped[str | None]
    detail: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))


def record(
    session: Session | Connection, action: str, subject: str, *, reason: str | None = None, **detail: Any
) -> None:
    values = {"actor": actor(), "action": action, "subject": subject, "reason": reason, "detail": detail or None}
    session.execute(sa.insert(Audit).values(**values))


_signed_in: ContextVar[str | None] = ContextVar("signed_in", default=None)


@contextmanager
def acting(name: str) -> Iterator[None]:
    """What is changed meanwhile in this thread was done by that one, who is not at this program."""
    before = _signed_in.set(name)
    try:
        yield
    finally:
        _signed_in.reset(before)


def actor() -> str:
    """The person who is signed in; else the one at this program, as far as the machine knows."""
    if (signed_in := _signed_in.get()) is not None:
        return signed_in
    name = ""
    with suppress(OSError, KeyError):  # a container may run under a number that has no name
        name = getpass.getuser()
    # Of an account whose name is not UTF-8, which no database would take, the octets are told.
    told = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return f"{told or os.getuid()}@{socket.gethostname()}"
