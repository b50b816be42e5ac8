"""The queues of stages. What they promise:

- An entity is in the queue of a stage at most once. Offered twice, it keeps the earliest time (S2).
- A time that lies in the future is a timer: the entity is visited when it comes.
- Offered while it is visited, it is visited again, at the earliest of the times that it was offered for meanwhile
  (S10).
- An offer never shortens the pause after a failure, and never wakes what is parked: it is remembered until that ends.
- The low lane never changes the main one: an entity may be in both, and one visit serves both (S16).
- What is offered in a transaction is there with its commit, or not at all.
- An entity that is deleted is in no queue. Taken out of a queue while it is visited, the visit saves nothing.
- All of it by shard, which is a hash of the id, the same in Python and in the database (S13).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.orm import Session

from app.arrays import Array
from app.claims import Lane
from app.db import joined
from app.errors import BadRequest, NotFound
from app.jobs.enqueue import ring_after_commit
from app.shares import Shards
from stages.definition import Definition
from stages.kind import Kind
from stages.model import GUARD, VISIT, StageVisit, VisitState
from stages.moments import moment
from stages.registration import declared
from stages.watched import Watched, kind_of

PEEK_MOST = 10_000
TEXTS, MOMENT = Array(sa.Text), TIMESTAMP(timezone=True)


@dataclass(frozen=True)
class Entry:
    #: As the entity has it: one value, or a tuple for a composite key. What can be no id of the kind is its text.
    id: Any
    #: When it may be visited: what was asked for, and the pause after a failure.
    visit_time: datetime
    state: VisitState = VisitState.WAITING


def offer(
    entity: Any, stage: Any, visit_time: datetime | None = None, *, low: bool = False, session: Session | None = None
) -> bool:
    """Puts an entity into the queue of a stage, for now or for a time. Whether that changed anything.

    `entity`: an object of the stage's kind, or its id. `stage`: its class, or `"kind.stage"`. `low`: into the low lane.
    """
    return offer_many([entity], stage, visit_time, low=low, session=session) == 1


def offer_many(
    entities: Sequence[Any],
    stage: Any,
    visit_time: datetime | None = None,
    *,
    low: bool = False,
    session: Session | None = None,
) -> int:
    """The same for many, in one round trip; how many entries are new or earlier than before."""
    definition = definition_of(stage)
    at = None if visit_time is None else _checked_time(visit_time)
    ids = [text_of(definition.kind, each) for each in entities]
    if not ids:
        return 0
    time = sa.func.coalesce(sa.cast(at, MOMENT), sa.func.clock_timestamp())
    moved = sa.func.tidemill.offer_visits(
        definition.kind.name,
        sa.cast(ids, TEXTS),
        sa.cast([definition.name] * len(ids), TEXTS),
        sa.func.array_fill(time, sa.cast([len(ids)], Array(sa.Integer))),
        low,
    )
    with joined(session) as tx:
        count = cast(int, tx.execute(sa.select(moved)).scalar_one())
        if at is None or at <= datetime.now(UTC):
            ring_after_commit(tx, f"{definition.queue}.low" if low else definition.queue, definition.task)
    return count


def peek(
    stage: Any, limit: int = 100, *, low: bool = False, shards: Shards | None = None, session: Session | None = None
) -> list[Entry]:
    """What waits in the queue of a stage, the earliest first; takes nothing. SQL takes any text for an id: what can be
    none of this kind is told as that text, and goes when it is visited."""
    definition = definition_of(stage)
    if type(limit) is not int or not 1 <= limit <= PEEK_MOST:
        raise BadRequest(f"limit={limit!r:.100} must be a whole number from 1 to {PEEK_MOST}")
    lane = Lane.LOW if low else Lane.MAIN
    ready = StageVisit.ready(lane)
    query = (
        sa.select(VISIT.c.entity_id, ready.label("ready"))
        .where(VISIT.c.queue == definition.queue, StageVisit.waits_in(lane))
        .order_by(ready, VISIT.c.entity_id)
        .limit(limit)
    )
    if shards is not None:
        query = query.where(VISIT.c.shard.between(*shards))
    with joined(session) as tx:
        return [Entry(_id_of(definition.kind, row.entity_id), row.ready) for row in tx.execute(query)]


def _id_of(kind: Kind, text: str) -> Any:
    try:
        return kind.store.codec.id_of(text)
    except BadRequest:
        return text


def delete(entity: Any, stage: Any, *, session: Session | None = None) -> bool:
    """Takes an entity out of the queue of a stage. If it is being visited, the visit will save nothing, and others may
    work on the entity from now on."""
    definition = definition_of(stage)
    text = text_of(definition.kind, entity)
    with joined(session) as tx:
        return take_out(tx, definition.kind.name, text, definition.name)


def take_out(session: Session, kind: str, entity_id: str, stage: str) -> bool:
    mine = sa.and_(VISIT.c.kind == kind, VISIT.c.entity_id == entity_id, VISIT.c.stage == stage)
    gone = session.execute(sa.delete(VISIT).where(mine).returning(VISIT.c.pass_key)).first()
    if gone is not None and gone.pass_key is not None:
        held = (GUARD.c.kind == kind, GUARD.c.entity_id == entity_id, GUARD.c.pass_key == gone.pass_key)
        session.execute(sa.delete(GUARD).where(*held))
    return gone is not None


def check(entity: Any, *, session: Session | None = None) -> list[tuple[str, datetime]]:
    """In the queues of which stages an entity is, and for when. `entity`: an object, or `(Offer, id)`."""
    kind, text = _kind_and_text(entity)
    at = sa.func.greatest(sa.func.least(VISIT.c.due_at, VISIT.c.low_at), VISIT.c.not_before)
    query = (
        sa.select(VISIT.c.stage, sa.func.coalesce(at, VISIT.c.again_at, VISIT.c.again_low_at))
        .where(VISIT.c.kind == kind.name, VISIT.c.entity_id == text)
        .order_by(VISIT.c.stage)
    )
    with joined(session) as tx:
        return [(stage, at) for stage, at in tx.execute(query)]


def definition_of(stage: Any) -> Definition:
    """By its class, its definition, or `"kind.stage"`."""
    if isinstance(stage, Definition):
        return stage
    if isinstance(stage, str):
        kind, _, name = stage.removeprefix("stage.").partition(".")
        if (found := declared.get((kind, name))) is not None:
            return found
        near = ", ".join(sorted(".".join(key) for key in declared)) or "none"
        raise NotFound(f"no stage {stage!r:.100} is declared here; there are: {near}")
    for each in declared.values():
        if type(each.stage) is stage:
            return each
    raise NotFound(f"{stage!r:.100} is no stage: name a class that stands under @stage, or 'kind.stage'")


def text_of(kind: Kind, entity: Any) -> str:
    """Of an entity of the kind, or of an id."""
    if isinstance(entity, Watched):
        if kind_of(type(entity)).name != kind.name:
            raise BadRequest(f"{type(entity).__name__} is no {kind.name}: its stages do not visit it")
        return kind.store.loaded(entity).id
    return kind.store.codec.text_of(entity)


def _kind_and_text(entity: Any) -> tuple[Kind, str]:
    if isinstance(entity, tuple) and len(entity) == 2 and isinstance(entity[0], type | Kind):
        kind = kind_of(entity[0])
        return kind, kind.store.codec.text_of(entity[1])
    if isinstance(entity, Watched):
        kind = kind_of(type(entity))
        return kind, kind.store.loaded(entity).id
    raise BadRequest(f"{entity!r:.100} is no watched entity: give an object, or its class and its id: (Offer, 17)")


def _checked_time(visit_time: Any) -> datetime:
    try:
        return moment("visit_time", visit_time, datetime.now(UTC))
    except ValueError as error:
        raise BadRequest(str(error)) from None
