"""What is to be published after a commit (S14), and how far that has got."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSON
from sqlalchemy.orm import Mapped, mapped_column

from app.db import Model
from app.stream import Snapshot, TransactionId

NAME = sa.Text(collation="C")


class Event(Model):
    """A save by a stage. `id` is its sequence: it grows with every save of one entity, as whoever writes one holds the
    lock of the entity's row from before its number is drawn until its commit."""

    __tablename__ = "event"
    # Whoever follows the stream asks by transaction.
    __table_args__ = (sa.Index("event_xid", "xid"),)

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    kind: Mapped[str]
    entity_id: Mapped[str]
    stage: Mapped[str]
    #: Of the entity.
    version: Mapped[int] = mapped_column(sa.BigInteger)
    #: That the save changed; none: the state alone.
    fields: Mapped[list[str]] = mapped_column(ARRAY(sa.Text))
    entity: Mapped[Any] = mapped_column(JSON)
    #: Null: the stage keeps none. The version is 0 then.
    state_type: Mapped[str | None]
    state_value: Mapped[bytes | None]
    state_version: Mapped[int] = mapped_column(sa.BigInteger)
    saved_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    xid: Mapped[str] = mapped_column(TransactionId, server_default=sa.text("pg_current_xact_id()"))


class EventRelay(Model):
    """How far events were published; one row."""

    __tablename__ = "event_relay"
    __table_args__ = (sa.CheckConstraint("id = 1", name="only_one"),)

    id: Mapped[int] = mapped_column(sa.SmallInteger, primary_key=True, autoincrement=False)
    #: All that was visible in it is published.
    snapshot: Mapped[str] = mapped_column(Snapshot)
    #: What is published just now, where that is much: all that is visible in this one, in the order of ids, up to which
    #: id it is done, and the last one.
    target: Mapped[str | None] = mapped_column(Snapshot)
    done_id: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    last_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    #: Published once more, before anything new: from the first to the last of these ids.
    replay_from: Mapped[int | None] = mapped_column(sa.BigInteger)
    replay_to: Mapped[int | None] = mapped_column(sa.BigInteger)
    #: The lowest id that was published since `lately_at`, and in the span of TIDEMILL_EVENTS_REPLAY before that.
    lately_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    lately_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    earlier_id: Mapped[int | None] = mapped_column(sa.BigInteger)
    cluster: Mapped[int] = mapped_column(sa.BigInteger)
    #: Moves with every change of this row: whoever read another one has nothing to write.
    term: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("1"))
    published: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    moved_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())
    #: Why it does not move on, and since when.
    error: Mapped[str | None]
    failed_at: Mapped[datetime | None]


class EventSubscription(Model):
    """A queue of the broker that the relay makes, and makes again should the broker have lost it."""

    __tablename__ = "event_subscription"

    name: Mapped[str] = mapped_column(primary_key=True)
    #: Of routing keys `<kind>.<stage>`, with `*` and `#`.
    patterns: Mapped[list[str]] = mapped_column(ARRAY(sa.Text))
    #: Those before: RabbitMQ does not say what a queue is bound by, so all that may be left is taken away.
    former: Mapped[list[str]] = mapped_column(ARRAY(sa.Text), server_default=sa.text("'{}'"))
    created_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())


class EventSeen(Model):
    """The last event of an entity that a subscriber has handled, written in the transaction of what it did."""

    __tablename__ = "event_seen"
    __table_args__ = ({"postgresql_with": {"fillfactor": 80}},)

    subscriber: Mapped[str] = mapped_column(NAME, primary_key=True)
    kind: Mapped[str] = mapped_column(NAME, primary_key=True)
    entity_id: Mapped[str] = mapped_column(NAME, primary_key=True)
    sequence: Mapped[int] = mapped_column(sa.BigInteger)


EVENT = cast(sa.Table, Event.__table__)
