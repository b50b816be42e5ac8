"""Late tickets are dropped, but not all of a queue: it would never be looked into."""

from __future__ import annotations

import json
from typing import Any

import pytest
from celery.worker import request
from celery.worker.state import revoked as revoked_tasks
from kombu.message import Message

from app import doorbell, late
from app.celery import app
from app.doorbell import Bell
from app.late import TicketRequest
from app.tasks import Ticketed
from tests.kit.tasks import noop


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(late, "time", found)
    monkeypatch.setattr(late, "_looked_at", {})
    monkeypatch.setattr(doorbell, "EXPIRES_SECONDS", -1)
    return found


def ticket(queue: str, **headers: Any) -> TicketRequest:
    found = doorbell._headers(Bell(queue, doorbell.GENERIC)) | headers
    message = Message(
        body=json.dumps([[], {}, {}]),
        headers=found,
        delivery_info={"exchange": "", "routing_key": queue},
        content_type="application/json",
        content_encoding="utf-8",
    )
    application: Any = app
    return TicketRequest(message, app=application, hostname="here@test", task=noop)


def test_of_late_tickets_of_a_queue_one_a_second_counts(clock: Clock) -> None:
    assert not ticket("a").revoked()
    assert ticket("a").revoked()
    assert not ticket("b").revoked()
    clock.now += late.LOOK_SECONDS
    assert not ticket("a").revoked()
    assert ticket("a").revoked()


def test_what_was_let_in_stays_in() -> None:
    """Celery asks when it receives a ticket, and again when a child is free."""
    first, second = ticket("a"), ticket("a")
    assert [first.revoked(), second.revoked(), first.revoked(), second.revoked()] == [False, True, False, True]


def test_messages_that_are_no_tickets_are_dropped_when_late() -> None:
    """Passes, and what others send with Celery's own words."""
    message = ticket("a")
    del message.request_dict[doorbell.TICKET]
    assert message.revoked()


def test_what_was_dropped_is_not_remembered() -> None:
    # The memory of a worker would grow with each.
    before = len(revoked_tasks)
    assert [ticket("a").revoked() for _ in range(5)] == [False, True, True, True, True]
    assert len(revoked_tasks) == before


def test_what_was_revoked_by_its_id_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "EXPIRES_SECONDS", 60)
    found = ticket("a")
    monkeypatch.setattr(request, "revoked_tasks", {found.id})
    assert found.revoked()


def test_one_in_time_counts_whatever_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not ticket("a").revoked()
    monkeypatch.setattr(doorbell, "EXPIRES_SECONDS", 60)
    assert not ticket("a").revoked()


def test_tasks_are_received_so() -> None:
    assert Ticketed.Request == f"{TicketRequest.__module__}:{TicketRequest.__name__}"
    assert noop.Request == Ticketed.Request
