"""Whether a lane has work that could be begun now."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from app.arrays import Array
from app.claims import Lane
from app.claims.model import built_once
from app.db import autocommit
from app.limits import Queue, resting
from app.shares import Shards
from stages.definition import ASK, SYSTEM
from stages.model import VISIT, StageVisit


@built_once
def _ready(lane: Lane, sharded: bool, unlocked: bool = False) -> sa.Select[int]:  # noqa: FBT001
    names = sa.func.unnest(sa.bindparam("queues", type_=Array(sa.Text))).table_valued(sa.column("queue", sa.Text))
    named = names.render_derived(name="named")
    ready = StageVisit.ready(lane)
    # Whoever only asks works on no entity, so it need not wait for whoever does.
    guard = StageVisit.takeable() if unlocked else StageVisit.unguarded()
    free = sa.or_(VISIT.c.stage == SYSTEM, VISIT.c.stage.endswith(ASK, autoescape=True), guard)
    # Nor can anybody begin what is shut.
    shut = sa.or_(Queue.paused, resting(sa.func.now()))
    is_open = ~sa.exists().where(Queue.name == named.c.queue, shut)
    first = (
        sa.select(VISIT.c.entity_id)
        .where(VISIT.c.queue == named.c.queue, StageVisit.waits_in(lane), ready <= sa.func.now(), free)
        .order_by(ready)
        .limit(1)
    )
    if sharded:
        first = first.where(VISIT.c.shard.between(sa.bindparam("shard"), sa.bindparam("last_shard")))
    if unlocked:
        first = first.with_for_update(read=True, skip_locked=True, of=VISIT)
    return sa.select(sa.literal(1)).select_from(named.join(first.lateral("first"), sa.true())).where(is_open).limit(1)


def has_work(queues: Sequence[str], lane: Lane, shards: Shards | None = None, *, unlocked: bool = False) -> bool:
    """Whether in one of these queues an entity is due, and nobody works on it; `unlocked`: nor holds its entry, as a
    stranger's open transaction may for hours."""
    within = {} if shards is None else {"shard": shards[0], "last_shard": shards[1]}
    parameters = {"queues": list(queues), **within}
    with autocommit() as connection:
        found = connection.execute(_ready(lane, shards is not None), parameters).first()
        if found is not None and unlocked:
            # Asked only now, because it writes.
            found = connection.execute(_ready(lane, shards is not None, unlocked), parameters).first()
        return found is not None


def warm_up() -> None:
    for lane in Lane:
        _ready(lane, sharded=False)
