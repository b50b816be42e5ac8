"""Exactly once, as far as a database reaches: what a subscriber has handled, in the transaction of what it did."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app.events.event import Event
from app.outbox.model import EventSeen


def first_time(session: Session, subscriber: str, event: Event) -> bool:
    """Whether this subscriber has not handled this event yet, nor a later one of the same entity. It has from the
    commit of this transaction on. Of two that ask at once, one waits for the other's commit."""
    values = {
        "p_subscriber": subscriber,
        "p_kind": event.kind,
        "p_entity_id": event.id,
        "p_sequence": event.sequence,
    }
    return session.execute(_seeing(), values).one_or_none() is not None


@cache
def _seeing() -> Any:
    insert = postgresql.insert(EventSeen).values(
        subscriber=sa.bindparam("p_subscriber"),
        kind=sa.bindparam("p_kind"),
        entity_id=sa.bindparam("p_entity_id"),
        sequence=sa.bindparam("p_sequence"),
    )
    later = insert.on_conflict_do_update(
        index_elements=["subscriber", "kind", "entity_id"],
        set_={"sequence": insert.excluded.sequence},
        where=EventSeen.sequence < insert.excluded.sequence,
    )
    return later.returning(sa.literal_column("1"))
