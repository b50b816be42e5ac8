"""The tables of stages: what is watched, what waits to be visited or is, what stages keep, who works on an entity.

Lock order is law: entities, then rows of the queue, then guards, then states, then walks, then their parts; within each
by key.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY, ENUM, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.arrays import Array
from app.claims import Claimable, Executor, Lane, PassKey, claim_indexes
from app.claims.model import is_waiting, when
from app.db import SCHEMA, Model

#: By bytes, so that Python and the database sort alike, and the index compares fast.
NAME = sa.Text(collation="C")


class VisitState(enum.StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PARKED = "parked"  # failed too often, or stages go round in a circle


class Sharding(Model):
    """Into how many shards the entities of all kinds fall (S13); written once, by the migration."""

    __tablename__ = "sharding"
    __table_args__ = (
        sa.CheckConstraint("id = 1", name="only_one"),
        sa.CheckConstraint("shards between 1 and 4096", name="shards_within"),
    )

    id: Mapped[int] = mapped_column(sa.SmallInteger, primary_key=True, autoincrement=False)
    shards: Mapped[int] = mapped_column(sa.SmallInteger)


class EntityKind(Model):
    """A table whose rows are watched. Written by `tidemill.watch`, completed by the registration of its model."""

    __tablename__ = "entity_kind"
    __table_args__ = (sa.CheckConstraint("mode in ('exclusive', 'optimistic')", name="mode_known"),)

    kind: Mapped[str] = mapped_column(primary_key=True)
    #: The watched table, with its schema.
    relation: Mapped[str | None]
    mode: Mapped[str] = mapped_column(server_default=sa.text("'exclusive'"))


class Stage(Model):
    """A registered stage; the limits are those of its queue."""

    __tablename__ = "stage"

    kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    task: Mapped[str]
    #: Whose registration tells that the stage is gone.
    module: Mapped[str]
    #: Not asked when none of these fields changed; null: always asked.
    watches: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))
    max_attempts: Mapped[int] = mapped_column(sa.SmallInteger)
    #: False: another entry asks for it, and no change enqueues it by itself.
    asked: Mapped[bool] = mapped_column(server_default=sa.true())
    #: The limits that the code says; applied when that changes, so that what an operator set lasts.
    declared: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))
    #: How often `should_process` raised, and the entity was enqueued for it (S4).
    ask_failures: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    ask_failure: Mapped[str | None]
    registered_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    removed_at: Mapped[datetime | None]


class StageVisit(Claimable, Model):
    """An entity in the queue of a stage; at most once (S2)."""

    __tablename__ = "stage_visit"
    __table_args__ = (
        sa.CheckConstraint(
            "(state = 'running') = (pass_key is not null) and (state = 'running') = (recovery_time is not null)",
            name="claimed_exactly_while_running",
        ),
        sa.CheckConstraint(
            "state <> 'waiting' or (again_at is null and again_low_at is null)", name="asked_again_while_not_waiting"
        ),
        sa.CheckConstraint("state <> 'waiting' or due_at is not null or low_at is not null", name="waits_for_a_time"),
        {
            "postgresql_with": {
                "fillfactor": 70,
                "autovacuum_vacuum_scale_factor": 0.0,
                "autovacuum_vacuum_threshold": 20000,
                "autovacuum_vacuum_cost_delay": 0,
            }
        },
    )
    NOUN = "visit"
    RANKED = False
    INCLUDED = ("shard",)
    VARYING = "entity_id"

    kind: Mapped[str] = mapped_column(NAME, primary_key=True)
    entity_id: Mapped[str] = mapped_column(NAME, primary_key=True)
    stage: Mapped[str] = mapped_column(NAME, primary_key=True)
    shard: Mapped[int] = mapped_column(sa.SmallInteger)
    state: Mapped[VisitState] = mapped_column(
        ENUM(VisitState, name="visit_state", schema=SCHEMA, values_callable=lambda words: [w.value for w in words]),
        server_default=sa.text("'waiting'"),
    )
    #: Of the main lane: the earliest time asked for, timers included. Null: only the low lane wants it.
    due_at: Mapped[datetime | None] = mapped_column(server_default=None)
    #: Of the low lane.
    low_at: Mapped[datetime | None]
    #: Asked for again while it was visited or parked (S10).
    again_at: Mapped[datetime | None]
    again_low_at: Mapped[datetime | None]
    #: Of the system stage: what has changed since it asked last; `{*}`: everything.
    fields: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))
    again_fields: Mapped[list[str] | None] = mapped_column(ARRAY(sa.Text))
    #: S11: how many visits led here without a pause, and by which stages.
    hops: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    again_hops: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    chain: Mapped[str | None]
    again_chain: Mapped[str | None]
    #: Of the last try that failed, with the versions of entity and state that it saw.
    error: Mapped[str | None]
    traceback: Mapped[str | None]
    seen_version: Mapped[int | None] = mapped_column(sa.BigInteger)
    seen_state_version: Mapped[int | None] = mapped_column(sa.BigInteger)
    failed_at: Mapped[datetime | None]

    @classmethod
    def ready(cls, lane: Lane) -> sa.ColumnElement[datetime]:
        return when(cls.due_at if lane is Lane.MAIN else cls.low_at, cls.not_before)

    @classmethod
    def waits_in(cls, lane: Lane) -> sa.ColumnElement[bool]:
        asked = cls.due_at if lane is Lane.MAIN else cls.low_at
        return is_waiting(cls) & asked.is_not(None)

    @classmethod
    def order(cls) -> tuple[Any, ...]:
        # The queue says the rest of the key.
        return (VISIT.c.entity_id,)

    @classmethod
    def unguarded(cls) -> sa.ColumnElement[bool]:
        """S12: nobody works on the entity now."""
        held = sa.select(sa.literal(1)).where(*_GUARDED, GUARD.c.until > sa.func.now())
        return ~sa.exists(held.correlate(VISIT))

    @classmethod
    def takeable(cls) -> sa.ColumnElement[bool]:
        """Unguarded, and a guard that is over can be had at once: a claim waits for no stranger that has it locked, as
        the transaction of a worker whose machine vanished."""
        known = sa.select(GUARD.c.until).where(*_GUARDED).correlate(VISIT).scalar_subquery()
        free = sa.select(GUARD.c.entity_id).where(*_GUARDED).correlate(VISIT).with_for_update(skip_locked=True)
        # One look for an entity that nobody has worked on of late, as most are.
        return sa.case(
            (known.is_(None), sa.true()),
            (known <= sa.func.now(), free.scalar_subquery().is_not(None)),
            else_=sa.false(),
        )

    @classmethod
    def guarding(cls, chosen: sa.CTE) -> sa.CTE:
        """Takes the entities of the chosen rows, expired guards over, and says which it got."""
        lease = sa.func.statement_timestamp() + sa.bindparam("p_lease", type_=sa.Interval)
        mine = sa.bindparam("p_pass_key", type_=sa.Uuid)
        insert = postgresql.insert(GUARD).from_select(
            ["kind", "entity_id", "stage", "pass_key", "until"],
            sa.select(chosen.c.kind, chosen.c.entity_id, chosen.c.stage, mine, lease).order_by(
                chosen.c.kind, chosen.c.entity_id
            ),
        )
        return (
            insert.on_conflict_do_update(
                index_elements=["kind", "entity_id"],
                set_={word: insert.excluded[word] for word in ("stage", "pass_key", "until")},
                where=GUARD.c.until <= sa.func.now(),
            )
            .returning(GUARD.c.kind, GUARD.c.entity_id, GUARD.c.stage)
            .cte("guarded")
        )

    @classmethod
    def returned(cls) -> list[Any]:
        # A row has many columns, and a visit few microseconds.
        names = "kind entity_id stage queue rank fields hops chain attempts alone claimed_at"
        return [VISIT.c[name] for name in names.split()]

    @classmethod
    def abandon(cls, executor: Executor, passes: Sequence[PassKey]) -> None:
        ended = GUARD.c.pass_key == sa.any_(sa.cast(list(passes), Array(sa.Uuid)))
        key = (GUARD.c.kind, GUARD.c.entity_id)
        free = sa.select(*key).where(ended).order_by(*key).with_for_update(skip_locked=True).cte("free")
        mine = (column == free.c[column.name] for column in key)
        executor.execute(sa.update(GUARD).where(*mine).values(until=sa.func.now()))

    @classmethod
    def released(cls) -> dict[str, Any]:
        return {
            "due_at": sa.func.least(VISIT.c.due_at, VISIT.c.again_at),
            "low_at": sa.func.least(VISIT.c.low_at, VISIT.c.again_low_at),
            "fields": joined_fields(VISIT.c.fields, VISIT.c.again_fields),
            "hops": sa.func.greatest(VISIT.c.hops, VISIT.c.again_hops),
            "chain": sa.case((VISIT.c.again_hops > VISIT.c.hops, VISIT.c.again_chain), else_=VISIT.c.chain),
            **NOT_AGAIN,
        }

    @classmethod
    def exhausted(cls) -> sa.ColumnElement[bool]:
        most = sa.select(Stage.max_attempts).where(Stage.kind == VISIT.c.kind, Stage.name == VISIT.c.stage)
        return VISIT.c.attempts >= sa.func.coalesce(most.correlate(VISIT).scalar_subquery(), ATTEMPTS)


#: Of a stage that nobody has registered, the system stage included.
ATTEMPTS = 10
#: What a row that waits says of having been asked for again.
NOT_AGAIN: dict[str, Any] = {
    "again_at": None,
    "again_low_at": None,
    "again_fields": None,
    "again_hops": 0,
    "again_chain": None,
}


def joined_fields(some: Any, others: Any) -> sa.ColumnElement[Any]:
    return sa.func.tidemill.joined_fields(some, others, type_=ARRAY(sa.Text))


class EntityGuard(Model):
    """S12, exclusive mode: who works on an entity, and until when that holds without a sign of life."""

    __tablename__ = "entity_guard"
    __table_args__ = (
        {
            "postgresql_with": {
                "fillfactor": 50,
                "autovacuum_vacuum_scale_factor": 0.0,
                "autovacuum_vacuum_threshold": 5000,
                "autovacuum_vacuum_cost_delay": 0,
            }
        },
    )

    kind: Mapped[str] = mapped_column(NAME, primary_key=True)
    entity_id: Mapped[str] = mapped_column(NAME, primary_key=True)
    #: For which it works.
    stage: Mapped[str] = mapped_column(NAME)
    pass_key: Mapped[PassKey] = mapped_column(sa.Uuid)
    until: Mapped[datetime]


class StageState(Model):
    """S6: what a stage keeps beside an entity, a protobuf `Any`; `version` moves with every change, and never comes
    again for this entity and stage, also when the state was removed and made anew: see `FIRST_VERSION`."""

    __tablename__ = "stage_state"
    __table_args__ = ({"postgresql_with": {"fillfactor": 85}},)

    kind: Mapped[str] = mapped_column(NAME, primary_key=True)
    entity_id: Mapped[str] = mapped_column(NAME, primary_key=True)
    stage: Mapped[str] = mapped_column(NAME, primary_key=True)
    type_url: Mapped[str]
    value: Mapped[bytes]
    version: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("1"))
    changed_at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())


VISIT = cast(sa.Table, StageVisit.__table__)
GUARD = cast(sa.Table, EntityGuard.__table__)
STATE = cast(sa.Table, StageState.__table__)
_GUARDED = (GUARD.c.kind == VISIT.c.kind, GUARD.c.entity_id == VISIT.c.entity_id)
#: Of a state that is made. Every change of a state draws the id of an event from this sequence, and moves the version
#: by one: so what is drawn later is more than any version before. (S19: who saw an earlier state has not seen this.)
FIRST_VERSION: sa.ColumnElement[int] = sa.func.nextval(
    sa.literal_column(f"'{SCHEMA}.event_id_seq'"), type_=sa.BigInteger
)
sa.Index("stage_visit_parked", VISIT.c.queue, VISIT.c.failed_at, postgresql_where=VISIT.c.state == sa.text("'parked'"))
claim_indexes(StageVisit, Lane.MAIN, Lane.LOW)


class ResweepState(enum.StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


class Resweep(Model):
    """S16: a walk over all entities of a kind that asks stages whether they want them; into the low lane."""

    __tablename__ = "resweep"
    __table_args__ = (
        sa.CheckConstraint("rate > 0", name="rate_positive"),
        sa.CheckConstraint(
            "state in ('running', 'paused') and ended_at is null "
            "or state in ('done', 'cancelled') and ended_at is not null",
            name="ended_as_its_state_says",
        ),
        sa.Index("resweep_one_of_a_stage", "kind", "stage", unique=True, postgresql_where=sa.text("ended_at is null")),
    )

    id: Mapped[int] = mapped_column(sa.BigInteger, sa.Identity(always=False), primary_key=True)
    kind: Mapped[str]
    #: That is asked; the system stage: all are.
    stage: Mapped[str]
    state: Mapped[str] = mapped_column(server_default=sa.text("'running'"))
    #: Entities asked about for a second, in all parts together.
    rate: Mapped[float | None]
    #: The last turn that was given to a part, where a rate rules.
    paced_to: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    #: About how many entities there were at the start.
    total: Mapped[int] = mapped_column(sa.BigInteger)
    #: From when, and from how many on, the rate so far is counted: the start, or the last resumption or change of rate.
    measured_from: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    asked_before: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    requested_by: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    ended_at: Mapped[datetime | None]


class PartState(enum.StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PARKED = "parked"  # a word of every claim; no part is: what kills workers is passed over
    DONE = "done"  # or its walk was cancelled


class ResweepPart(Claimable, Model):
    """One range of ids of a walk, with its cursor. A claim walks some pages of it. `due_at` is null while the walk is
    paused."""

    __tablename__ = "resweep_part"
    __table_args__ = (
        sa.CheckConstraint(
            "(state = 'running') = (pass_key is not null) and (state = 'running') = (recovery_time is not null)",
            name="claimed_exactly_while_running",
        ),
        {"postgresql_with": {"fillfactor": 50}},
    )
    NOUN = "walk"
    RANKED = False

    resweep_id: Mapped[int] = mapped_column(
        sa.ForeignKey(Resweep.id, ondelete="cascade"), primary_key=True, autoincrement=False
    )
    part: Mapped[int] = mapped_column(sa.SmallInteger, primary_key=True, autoincrement=False)
    state: Mapped[PartState] = mapped_column(
        ENUM(PartState, name="part_state", schema=SCHEMA, values_callable=lambda words: [w.value for w in words]),
        server_default=sa.text("'waiting'"),
    )
    #: What was asked about last, and the last of the range; null: from the first, to the end.
    after: Mapped[str | None]
    until: Mapped[str | None]
    asked: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    #: Answers that were a time or a yes.
    wanted: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    #: Entities that could not be read, and were passed over.
    failed: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    #: A worker died here: so many entities are still asked about one by one, so that what kills it is found.
    singly: Mapped[int] = mapped_column(sa.SmallInteger, server_default=sa.text("0"))
    #: The last one.
    error: Mapped[str | None]


PART = cast(sa.Table, ResweepPart.__table__)
claim_indexes(ResweepPart, Lane.MAIN)
#: How long a chain of changes may seem one: a timer that is due within this time continues it.
AT_ONCE = timedelta(seconds=1)
