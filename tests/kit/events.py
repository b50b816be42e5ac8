"""Events as stages write them, and subscribers that note what they get.

A save holds the lock of its entity's row from before the event is written until the commit, as a stage does.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from kombu import Connection
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import outbox
from app.events import Event, Subscriber
from app.outbox import relay as relaying
from app.outbox.broker import EXCHANGE, MARK, PREFIX
from app.outbox.relay import Relay
from app.settings import settings
from tests.kit.waiting import wait_until

SECONDS = 120
#: Names of the subscriptions of tests, so that what an outside broker keeps of them can be taken away.
NAMES = ("mail", "search", "both")
SAVING = """
import sys
from app import db
from sqlalchemy.orm import Session
from tests.kit import events
with Session(db.engine()) as session:
    for number in range({count}):
        events.save(session, f"o-{{number % {entities}}}")
        session.commit()
"""


_BACKLOG = sa.text(
    """
    INSERT INTO tidemill.event (kind, entity_id, stage, version, fields, entity, state_version)
    SELECT 'offer', 'o-' || i, 'expire', 1, '{status}', '{"status": "new"}', 0 FROM generate_series(1, :rows) AS i
    """
)


def create(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS saved (id text PRIMARY KEY, version bigint NOT NULL)")


def save(
    session: Session,
    entity_id: str,
    *,
    kind: str = "offer",
    stage: str = "expire",
    entity: dict[str, Any] | None = None,
    state: bytes | None = None,
) -> int:
    """One save, in the transaction of the session; its sequence."""
    changed = "INSERT INTO saved VALUES (:id, 1) ON CONFLICT (id) DO UPDATE SET version = saved.version + 1"
    version = session.execute(sa.text(f"{changed} RETURNING version"), {"id": f"{kind} {entity_id}"}).scalar_one()
    values = {
        "kind": kind,
        "entity_id": entity_id,
        "stage": stage,
        "version": version,
        "entity": json.dumps(entity or {"id": entity_id, "status": "new"}),
        "state_type": None if state is None else "type.googleapis.com/test.State",
        "state_value": state,
        "state_version": 0 if state is None else 1,
    }
    insert = """
    INSERT INTO tidemill.event
        (kind, entity_id, stage, version, fields, entity, state_type, state_value, state_version)
    VALUES (:kind, :entity_id, :stage, :version, '{status}', CAST(:entity AS json), :state_type, :state_value,
            :state_version)
    RETURNING id
    """
    return int(session.execute(sa.text(insert), values).scalar_one())


def save_all(session: Session, count: int, entities: int = 3) -> list[int]:
    """Each in a transaction of its own."""
    found = []
    for number in range(count):
        found.append(save(session, f"o-{number % entities}"))
        session.commit()
    return found


def fill(engine: Engine, rows: int) -> None:
    """A backlog, in one transaction."""
    with engine.begin() as connection:
        connection.execute(_BACKLOG, {"rows": rows})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE tidemill.event")


@contextmanager
def own_relay(monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """That of this process, as it is when a process starts."""
    own = Relay()
    monkeypatch.setattr(relaying, "_own", own)
    yield own
    own.close()


def relay(url: str | None = None) -> Relay:
    return Relay(url)


def publish(by: Relay | None = None, most: int = 1000, limit: int = 500) -> int:
    """Passes until nothing is left; how many events were published."""
    count = 0
    for _ in range(most):
        report = outbox.run_once(limit) if by is None else by.run_once(limit)
        count += report.published
        if not report.more and not report.published:
            return count
    raise AssertionError(f"there still is more after {most} passes")


class Seen:
    """A subscriber that passes over what it has seen: what it does, in its order, and all it was given."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self._last: dict[tuple[str, str], int] = {}
        self.handled: dict[tuple[str, str], list[int]] = defaultdict(list)

    def __call__(self, event: Event) -> None:
        self.given.append(event.sequence)
        if event.sequence > self._last.get(event.key, 0):
            self._last[event.key] = event.sequence
            self.handled[event.key].append(event.sequence)

    @property
    def count(self) -> int:
        return sum(len(each) for each in self.handled.values())


def written(session: Session) -> dict[tuple[str, str], list[int]]:
    """Every save, in the order of its entity."""
    found = defaultdict(list)
    rows = session.execute(sa.text("SELECT kind, entity_id, id FROM tidemill.event ORDER BY id")).all()
    session.rollback()
    for kind, entity_id, number in rows:
        found[(kind, entity_id)].append(number)
    return found


def drained(name: str, *patterns: str, url: str | None = None, seconds: float = 1.0) -> list[Event]:
    """What lies in a queue, acknowledged; a loaded machine may bring it late."""
    with Subscriber(name, *(patterns or ("#",)), url=url, timeout=seconds) as subscriber:
        found, tries = list(subscriber), 0
        while _lies(name, url or settings().resolved_events_url()) and tries < SECONDS:
            found, tries = [*found, *subscriber], tries + 1
        return found


def _lies(name: str, url: str) -> int:
    """How many lie there that no consumer has been sent."""
    with Connection(url) as connection:
        channel: Any = connection.default_channel
        # An empty queue of Redis is none.
        with suppress(*connection.channel_errors):
            return int(channel.queue_declare(queue=f"{PREFIX}{name}", passive=True).message_count)
    return 0


@contextmanager
def listening(name: str, *patterns: str, url: str | None = None) -> Iterator[Seen]:
    """Meanwhile, in a thread."""
    seen = Seen()
    subscriber = Subscriber(name, *(patterns or ("#",)), url=url)

    def run() -> None:
        with subscriber:
            for event in subscriber:
                seen(event)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        subscriber.stop()
        thread.join(SECONDS)


def all_seen(session: Session, seen: Seen, seconds: float = SECONDS) -> None:
    """Every save, once, in order."""
    wait_until(lambda: seen.count >= sum(len(each) for each in written(session).values()), seconds, "all are seen")
    assert seen.handled == written(session)


def wipe(url: str, names: Sequence[str] = NAMES) -> None:
    """As a broker that was made anew: it has nothing of ours."""
    if url.startswith("redis"):
        with redis.Redis.from_url(url, socket_timeout=60) as broker:
            broker.flushdb()
        return
    with Connection(url) as connection:
        channel: Any = connection.default_channel
        for queue in (MARK, *(f"{PREFIX}{name}" for name in names)):
            channel.queue_delete(queue=queue)
        channel.exchange_delete(EXCHANGE.name)


def state(session: Session) -> Any:
    row = session.execute(sa.text("SELECT * FROM tidemill.event_relay")).one_or_none()
    session.rollback()
    return row
