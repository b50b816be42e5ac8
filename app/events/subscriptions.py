"""Subscriptions that are kept in the database: the relay makes their queues, and makes them again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app import outbox
from app.db import joined, transaction
from app.errors import BadRequest, NotFound
from app.events.sources import connection, errors
from app.outbox.broker import remove, remove_mark
from app.outbox.model import EventSeen, EventSubscription
from app.settings import settings

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PATTERN = re.compile(r"(?:\*|#|[^\s.*#\x00-\x1f]+)(?:\.(?:\*|#|[^\s.*#\x00-\x1f]+))*")
ALL = "#"


def check(name: str, patterns: Sequence[str]) -> None:
    if not _NAME.fullmatch(name):
        raise BadRequest(f"subscription {name!r}: a name is up to 100 letters, digits and _ . -, and begins with one")
    if not patterns:
        raise BadRequest(f"subscription {name!r} has no pattern: name one such as 'offer.*', or '#' for all events")
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern) or len(pattern.encode()) > 255:
            raise BadRequest(
                f"subscription {name!r}: {pattern!r} is no pattern of <kind>.<stage>: words between dots, of which "
                f"* stands for any one and # for any number"
            )


def subscribe(name: str, *patterns: str, session: Session | None = None) -> None:
    """From the commit on, no event that these patterns match is missed, whether or not a subscriber runs; also when
    the broker is wiped, as long as TIDEMILL_EVENTS_REPLAY covers it. Again with other patterns: these count."""
    check(name, patterns)
    insert = postgresql.insert(EventSubscription).values(name=name, patterns=list(patterns))
    before, after = EventSubscription.patterns, insert.excluded.patterns
    former = sa.case((before == after, EventSubscription.former), else_=EventSubscription.former + before)
    changed = insert.on_conflict_do_update(index_elements=["name"], set_={"patterns": after, "former": former})
    with joined(session) as tx:
        tx.execute(changed)


def unsubscribe(name: str, url: str | None = None) -> bool:
    """Forgets the subscription and what its subscriber has seen, and deletes the queue with what is in it. False: the
    broker is away; the relay deletes the queue, unless it is restarted before."""
    with transaction() as session:
        forget(session, name)
    return delete_queues([name], url)


def forget(session: Session, name: str) -> None:
    gone = sa.delete(EventSubscription).where(EventSubscription.name == name).returning(EventSubscription.name)
    if session.execute(gone).one_or_none() is None:
        raise NotFound(f"there is no subscription {name!r}: see 'tidemill events subscriptions'")
    session.execute(sa.delete(EventSeen).where(EventSeen.subscriber == name))


def restored(session: Session) -> tuple[int, list[str]]:
    """The database is a backup: gives what is saved from now on sequences that nobody has seen. Returns the first of
    them, and whose queues are to be deleted: what is in them may be of saves that are lost."""
    return outbox.restored(session), list(session.scalars(sa.select(EventSubscription.name)))


def delete_queues(names: Sequence[str], url: str | None = None, *, mark: bool = False) -> bool:
    """With what is in them; `mark`: the relay is to notice, and to make them again. False: the broker is away."""
    with closing(connection(url or settings().resolved_events_url())) as broker:
        try:
            broker.ensure_connection(max_retries=0, reraise_as_library_errors=False)
            for name in names:
                remove(broker.default_channel, name)
            if mark:
                remove_mark(broker.default_channel)
        except errors(broker):
            return False
    return True
