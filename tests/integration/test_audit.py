"""What a person changes by hand is recorded in the transaction of the change: who, what, why."""

from __future__ import annotations

import getpass
import os
import socket
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import audit
from app.audit import Audit
from tests.kit.rows import count
from triggers import ctl

T = datetime(2026, 7, 1, tzinfo=UTC)


def test_restating_is_recorded_with_actor_reason_and_both_values(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # T15
    monkeypatch.setattr(getpass, "getuser", lambda: "olga")
    ctl.advance("dds.orders", loaded_to=T)
    ctl.restate("dds.orders", loaded_to=T.replace(day=2), first=T, reason="the load of July was empty")
    first, second = session.scalars(sa.select(Audit).order_by(Audit.id))
    assert first.subject == "dds.orders.first"
    assert first.detail == {"parameter": "first", "from": None, "to": "2026-07-01T00:00:00+00:00"}
    assert (second.subject, second.action) == ("dds.orders.loaded_to", "ctl.restate")
    assert (second.actor, second.reason) == (f"olga@{socket.gethostname()}", "the load of July was empty")
    assert second.detail == {
        "parameter": "loaded_to",
        "from": "2026-07-01T00:00:00+00:00",
        "to": "2026-07-02T00:00:00+00:00",
    }


def test_advancing_is_not_a_change_by_hand(session: Session) -> None:
    ctl.advance("dds.orders", loaded_to=T)
    assert count(session, Audit) == 0


def test_it_is_recorded_with_the_change_or_not_at_all(session: Session) -> None:
    ctl.restate("dds.orders", session=session, loaded_to=T, reason="because")
    session.rollback()
    assert count(session, Audit) == 0


def test_a_number_is_an_actor_too(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under one that has no name."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    audit.record(session, "queue.pause", "mail", reason=None)
    [found] = session.scalars(sa.select(Audit))
    assert found.actor == f"{os.getuid()}@{socket.gethostname()}"
    assert (found.reason, found.detail) == (None, None)
    assert found.at.tzinfo is not None
