"""The settings of actors and of types of processes (P6, P7): what the code says, brought to Postgres when a service
starts; what an operator sets in between lasts until the code says something else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.orm import Session

from app import audit, limits, locks
from app.arrays import Array
from app.clock import Rate
from app.db import autocommit, transaction
from app.errors import NotFound
from app.locks import Lock
from processes.checks import OF_QUEUE, checked_settings
from processes.definition import Definition, declared, unknown
from processes.model import PREFERENCES, ActorPreferences, queue_of

#: How long a worker goes by what it has read.
FRESH_SECONDS = 1.0


@dataclass(frozen=True)
class Synced:
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    actors: int = 0
    deciders: int = 0

    def told(self) -> list[str]:
        if not self.actors and not self.deciders and not self.removed:
            return []
        words = f"{len(self.new)} new, {len(self.changed)} changed, {len(self.removed)} removed"
        return [f"processes: {self.deciders} deciders and {self.actors} actors, of these {words}"]


def synchronize() -> Synced:
    with transaction() as session:
        locks.take(session, Lock.PROCESSES)
        return write(session, declared)


def write(session: Session, wanted: Mapping[str, Definition]) -> Synced:
    modules = sorted({each.module for each in wanted.values()} | set(sys.modules))
    ours = sa.or_(
        ActorPreferences.name.in_(wanted), ActorPreferences.module == sa.any_(sa.cast(modules, Array(sa.Text)))
    )
    known = {row.name: row for row in session.execute(sa.select(*PREFERENCES.c).where(ours))}
    new = sorted(wanted.keys() - known.keys())
    changed = tuple(name for name in sorted(wanted.keys() & known.keys()) if _differs(known[name], wanted[name]))
    removed = tuple(sorted(name for name, row in known.items() if name not in wanted and row.removed_at is None))
    for name in (*new, *changed):
        _put(session, wanted[name], known.get(name))
    if removed:
        gone = sa.update(ActorPreferences).where(ActorPreferences.name.in_(removed))
        session.execute(gone.values(removed_at=sa.func.now()))
    deciders = sum(each.decider for each in wanted.values())
    return Synced(tuple(new), changed, removed, len(wanted) - deciders, deciders)


def _words(each: Definition) -> dict[str, Any]:
    return {"decider": each.decider, "outside": each.outside, "module": each.module, "task": each.task}


def _declared(each: Definition) -> dict[str, Any]:
    """As JSON: what is compared with what another release has said."""
    plain = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in each.settings().items()
    }
    return plain | {"max_parallel": each.max_parallel, "rate_limit": each.rate_limit}


def _differs(row: Row[Any], each: Definition) -> bool:
    same = all(getattr(row, word) == value for word, value in _words(each).items())
    return row.removed_at is not None or not same or row.declared != _declared(each)


def _put(session: Session, each: Definition, row: Row[Any] | None) -> None:
    """Only what the code says otherwise than before is set: the rest may have been set by an operator."""
    said, before = _declared(each), {} if row is None else row.declared
    moved = {name for name in said if name not in before or before[name] != said[name]}
    settings = {name: value for name, value in each.settings().items() if name in moved}
    values = _words(each) | settings | {"declared": said, "removed_at": None}
    if row is None:
        session.execute(sa.insert(ActorPreferences).values(name=each.name, **values))
    else:
        session.execute(sa.update(ActorPreferences).where(ActorPreferences.name == each.name).values(**values))
    if of_queue := limits.moved(said, before):
        limits.configure(session, queue_of(each.name), **of_queue)


def configure(name: str, changes: Mapping[str, Any], *, reason: str | None = None) -> dict[str, tuple[Any, Any]]:
    """Sets settings of an actor or a decider from now on; returns what was and what is, by name.

    Beside the settings of the code: `blocked` (nothing is handed out), `max_parallel`, `rate_limit`."""
    with transaction() as session:
        row = locked(session, name)
        wanted = checked_settings(name, changes, decider=row.decider)
        of_queue: dict[str, Any] = {word: wanted.pop(word) for word in OF_QUEUE if word in wanted}
        before = {word: getattr(row, word) for word in wanted} | _queue_before(session, name, of_queue)
        if wanted:
            session.execute(sa.update(ActorPreferences).where(ActorPreferences.name == name).values(**wanted))
        if of_queue:
            words = {_QUEUE_WORDS.get(word, word): value for word, value in of_queue.items()}
            limits.configure(session, queue_of(name), **words)
        now = wanted | of_queue
        told = {word: [_plain(before[word]), _plain(now[word])] for word in now}
        audit.record(session, "actor.set", name, reason=reason, changes=told)
    return {word: (before[word], now[word]) for word in now}


_QUEUE_WORDS = {"blocked": "paused", "rate_limit": "rate"}


def _queue_before(session: Session, name: str, words: Mapping[str, Any]) -> dict[str, Any]:
    if not words:
        return {}
    query = sa.select(limits.Queue.paused, limits.Queue.max_parallel, limits.Queue.rate)
    row = session.execute(query.where(limits.Queue.name == queue_of(name))).one_or_none()
    found = {
        "blocked": bool(row and row.paused),
        "max_parallel": row and row.max_parallel,
        "rate_limit": str(Rate(row.rate)) if row and row.rate else None,
    }
    return {word: found[word] for word in words}


def _plain(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def locked(session: Session, name: str) -> Row[Any]:
    """The row of an actor or a decider; an error that names the nearest where there is none."""
    query = sa.select(*PREFERENCES.c).where(PREFERENCES.c.name == name).with_for_update()
    row = session.execute(query).one_or_none()
    if row is None:
        names: Sequence[str] = session.execute(sa.select(PREFERENCES.c.name)).scalars().all()
        raise NotFound(unknown("actor", name, names))
    return row


@dataclass
class Remembered:
    """What a worker knows of the settings of actors, and for how long that is good."""

    rows: dict[str, tuple[float, Row[Any] | None]] = field(default_factory=dict)

    def of(self, name: str) -> Row[Any] | None:
        now = time.monotonic()
        read_at, row = self.rows.get(name, (float("-inf"), None))
        if now - read_at > FRESH_SECONDS:
            with autocommit() as connection:
                row = current(connection, name)
            self.rows[name] = (now, row)
        return row


def current(connection: Connection, name: str) -> Row[Any] | None:
    return connection.execute(_CURRENT, {"p_name": name}).one_or_none()


_CURRENT = sa.select(*PREFERENCES.c).where(PREFERENCES.c.name == sa.bindparam("p_name"))
