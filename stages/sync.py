"""What the code declares of kinds and stages, brought to Postgres when a service starts; many may start at once.

A stage that its module does not declare any more is removed: it is asked no more. A stage of a module that was not
imported here belongs to somebody else.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app import limits, locks
from app.arrays import Array
from app.db import transaction
from app.limits import UNCHANGED
from app.locks import Lock
from app.settings import settings
from stages.definition import RESWEEP, SYSTEM, Definition, queue_of
from stages.events import hook_queue
from stages.kind import Kind
from stages.model import EntityKind, Sharding, Stage
from stages.registration import declared, sources
from stages.watched import kinds


@dataclass(frozen=True)
class Synced:
    stages: int = 0
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    #: Kinds whose table has no trigger: nobody would hear of a change.
    unwatched: tuple[str, ...] = ()
    #: What the database was made with, where the setting says something else.
    shards: int | None = None

    def told(self) -> list[str]:
        if not self.stages and not self.removed:
            return []
        words = f"{len(self.new)} new, {len(self.changed)} changed, {len(self.removed)} removed"
        lines = [f"stages: {self.stages}, of these {words}"]
        lines += [
            f"  table {each} is not watched, so that its stages hear of no change: "
            "put the trigger on it with stages.install(session, …)"
            for each in self.unwatched
        ]
        if self.shards is not None:
            lines.append(f"  TIDEMILL_SHARDS is ignored: this database was made with {self.shards} shards")
        return lines


def synchronize() -> Synced:
    with transaction() as session:
        locks.take(session, Lock.STAGES)
        return write(session)


def write(session: Session) -> Synced:
    wanted = dict(sorted(declared.items()))
    of = {each.kind.name: each.kind for each in wanted.values()}
    _kinds(session, of)
    modules = sorted({each.module for each in wanted.values()} | set(sys.modules) | sources)
    ours = sa.or_(
        sa.tuple_(Stage.kind, Stage.name).in_(wanted), Stage.module == sa.any_(sa.cast(modules, Array(sa.Text)))
    )
    known = {(row.kind, row.name): row for row in session.execute(sa.select(*Stage.__table__.c).where(ours))}
    new: list[str] = []
    changed: list[str] = []
    for key, each in wanted.items():
        words, row = _words(each), known.get(key)
        if row is None or row.declared != words["declared"]:
            moved = limits.moved(words["declared"], None if row is None else row.declared)
            limits.configure(session, each.queue, **moved)
            if each.remote is not None and each.saved is not None:
                # A service that hangs must not hold every child of a worker.
                limits.configure(session, hook_queue(*key), max_parallel=moved.get("max_parallel", UNCHANGED))
        if row is not None and row.removed_at is None and all(getattr(row, word) == words[word] for word in words):
            continue
        insert = postgresql.insert(Stage).values(kind=key[0], name=key[1], **words)
        session.execute(
            insert.on_conflict_do_update(index_elements=["kind", "name"], set_=words | {"removed_at": None})
        )
        (new if row is None else changed).append(each.task)
    removed = [key for key, row in known.items() if key not in wanted and row.removed_at is None]
    _remove(session, removed)
    return Synced(
        len(wanted),
        tuple(new),
        tuple(changed),
        tuple(f"{kind}.{name}" for kind, name in removed),
        _unwatched(session, of),
        other_shards(session),
    )


def _words(each: Definition) -> dict[str, Any]:
    return {
        "task": each.task,
        "module": each.module,
        "watches": None if each.watches is None else sorted(each.watches),
        "max_attempts": each.max_attempts,
        "asked": each.asked,
        "declared": {"rate_limit": each.rate_limit, "max_parallel": each.max_parallel},
    }


def _kinds(session: Session, of: dict[str, Kind]) -> None:
    for name in sorted(of):
        insert = postgresql.insert(EntityKind).values(kind=name, mode=of[name].mode)
        same = EntityKind.mode == insert.excluded.mode
        session.execute(
            insert.on_conflict_do_update(index_elements=["kind"], set_={"mode": insert.excluded.mode}, where=~same)
        )


def _remove(session: Session, keys: list[tuple[str, str]]) -> None:
    """What waits for it stays, timers included, for a release that has it again; `stages.retention` ends that."""
    for kind, name in keys:
        session.execute(sa.update(Stage).where(Stage.kind == kind, Stage.name == name).values(removed_at=sa.func.now()))


def _unwatched(session: Session, of: dict[str, Kind]) -> tuple[str, ...]:
    found = session.execute(sa.select(EntityKind.kind).where(EntityKind.kind.in_(of), watched())).scalars()
    return tuple(sorted(of[each].table for each in of.keys() - set(found)))


def watched() -> sa.ColumnElement[bool]:
    """Whether the table of a kind is there, and has its trigger."""
    triggers = sa.table(
        "pg_trigger", sa.column("tgrelid"), sa.column("tgname"), sa.column("tgenabled"), schema="pg_catalog"
    )
    return sa.exists().where(
        triggers.c.tgrelid == sa.func.to_regclass(EntityKind.relation),
        triggers.c.tgname == "tidemill_updated",
        triggers.c.tgenabled != "D",
    )


def other_shards(session: Session) -> int | None:
    """With how many the database was made, where the setting says another number."""
    made = session.execute(sa.select(Sharding.shards)).scalar_one()
    return None if made == settings().shards else int(made)


def queues() -> set[str]:
    """Those of this domain that are no function's: system stages, low lanes, walks."""
    named = {each.queue for each in declared.values()} | {queue_of(kind, SYSTEM) for kind in kinds}
    walks = {queue_of(kind, RESWEEP) for kind in kinds}
    return {queue_of(kind, SYSTEM) for kind in kinds} | {f"{each}.low" for each in named} | walks
