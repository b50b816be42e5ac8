"""The state that a stage keeps beside an entity, read and updated by others than the stage (S19).

Promises:
- An update is a compare-and-set: of several that saw the same version, exactly one is made; the others hear which
  version is there now.
- State and, where it is asked for, the entry in the queue of the stage change in one transaction, or not at all.
- A visit that saw another state saves nothing, and is made again (S6).
- Every change is published like a save of the stage, in the order of its saves (S14).
- What the stage of this process could not read is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from google.protobuf.any_pb2 import Any as AnyMessage
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from app.db import joined, keep_to_time
from app.doorbell import GENERIC
from app.errors import BadOutcome, BadRequest, NotDeclared, NotFound, TooLarge, VersionConflict
from app.jobs.enqueue import ring_after_commit
from app.near import shown
from stages.definition import queue_of
from stages.events import record_outside
from stages.kind import NAME_LIMIT, Kind
from stages.model import FIRST_VERSION, STATE, Stage
from stages.registration import declared
from stages.state import STATE_LIMIT, Stored, unpack
from stages.watched import kinds

URL_LIMIT = 500
_NO_TEXT = re.compile(r"[\x00-\x20\x7f-\x9f\ud800-\udfff]")
_NONE = Stored("", b"", 0)


def read(kind: str, stage: str, entity_id: str, *, session: Session | None = None) -> Stored:
    """Version 0: there is none. `NotFound`: there is no such stage, or no such entity."""
    with _of(kind, stage, entity_id, session) as (tx, of):
        mine = sa.select(STATE.c.type_url, STATE.c.value, STATE.c.version).where(_mine(kind, stage, entity_id))
        row = tx.execute(mine).one_or_none()
        if row is not None:
            return Stored(row.type_url, bytes(row.value), row.version)
        if not of.store.versions(tx, [entity_id]):
            raise _no_entity(kind, entity_id)
        return _NONE


def update(
    kind: str,
    stage: str,
    entity_id: str,
    version: int,
    state: AnyMessage | None,
    *,
    visit: bool = False,
    session: Session | None = None,
) -> int:
    """Sets the state if its version still is `version` (0: there is none yet), or removes it (None). Returns its new
    version. `visit`: puts the entity into the queue of the stage with the same commit."""
    if type(version) is not int or not 0 <= version < 2**63:
        raise BadRequest(f"version={version!r:.100} must be one that was read, or 0 where there was none")
    if state is not None:
        _check(kind, stage, entity_id, state)
    with _of(kind, stage, entity_id, session) as (tx, of):
        # The order of locks: entities, queue, states.
        if not of.store.hold(tx, [entity_id], wait=True):
            raise _no_entity(kind, entity_id)
        if visit:
            keep_to_time(tx)
            tx.execute(sa.select(sa.func.tidemill.offer(kind, stage, entity_id)))
            ring_after_commit(tx, queue_of(kind, stage), GENERIC)
        keep_to_time(tx)
        new = tx.execute(_change(kind, stage, entity_id, version, state)).scalar_one_or_none()
        if new is None:
            there = _version(tx, kind, stage, entity_id)
            if state is None and version == there == 0:
                return 0
            raise VersionConflict(
                f"the state of stage {kind}.{stage} of {shown(entity_id)} has version {there} now, not {version}: read "
                "it again",
                there,
            )
        record_outside(tx.connection(), of, stage, entity_id)
        return 0 if state is None else int(new)


@contextmanager
def _of(kind: str, stage: str, entity_id: str, session: Session | None) -> Iterator[tuple[Session, Kind]]:
    """A transaction, where there is such a stage, and this process knows how the entities of its kind are stored."""
    for word, name in (("kind", kind), ("stage", stage)):
        if not re.fullmatch(rf"[a-z][a-z0-9_]{{0,{NAME_LIMIT - 1}}}", name):
            raise NotFound(f"there is no {word} {shown(name)}")
    with joined(session) as tx:
        known = sa.select(Stage.name).where(Stage.kind == kind, Stage.name == stage, Stage.removed_at.is_(None))
        if tx.execute(known).first() is None:
            raise NotFound(f"there is no stage {kind}.{stage}: 'tidemill stage list' shows those that there are")
        if (of := kinds.get(kind)) is None:
            raise NotDeclared(
                f"the kind {kind} is not declared in this process: name the module of its model in TIDEMILL_MODULES"
            )
        of.store.codec.id_of(entity_id)
        yield tx, of


def _check(kind: str, stage: str, entity_id: str, state: AnyMessage) -> None:
    url = state.type_url
    if not url or len(url) > URL_LIMIT or _NO_TEXT.search(url):
        raise BadRequest(
            f"the type_url {shown(url)} of the state must be 1 to {URL_LIMIT} characters without blanks, as in "
            "type.googleapis.com/shop.Prediction"
        )
    if len(state.value) > STATE_LIMIT:
        raise TooLarge(
            f"a state of {len(state.value)} bytes is more than {STATE_LIMIT}: store the large part elsewhere and keep "
            "its id"
        )
    definition = declared.get((kind, stage))
    if definition is None or definition.state is None:
        return
    try:
        unpack(definition, Stored(url, state.value, 1))
    except BadOutcome as error:
        raise BadRequest(f"{definition.whose(entity_id)} could not read this state: {error}") from None


def _mine(kind: str, stage: str, entity_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(STATE.c.kind == kind, STATE.c.entity_id == entity_id, STATE.c.stage == stage)


def _change(kind: str, stage: str, entity_id: str, version: int, state: AnyMessage | None) -> Any:
    """Returns the new version, where the old one was as it should be."""
    seen = sa.and_(_mine(kind, stage, entity_id), STATE.c.version == version)
    if state is None:
        return sa.delete(STATE).where(seen).returning(STATE.c.version)
    if version == 0:
        key = {"kind": kind, "entity_id": entity_id, "stage": stage}
        made = {"type_url": state.type_url, "value": state.value, "version": FIRST_VERSION}
        insert = postgresql.insert(STATE).values(**key, **made)
        return insert.on_conflict_do_nothing().returning(STATE.c.version)
    return (
        sa.update(STATE)
        .where(seen)
        .values(
            type_url=state.type_url,
            value=state.value,
            version=STATE.c.version + 1,
            changed_at=sa.func.clock_timestamp(),
        )
        .returning(STATE.c.version)
    )


def _version(session: Session, kind: str, stage: str, entity_id: str) -> int:
    found = session.execute(sa.select(STATE.c.version).where(_mine(kind, stage, entity_id))).scalar_one_or_none()
    return found or 0


def _no_entity(kind: str, entity_id: str) -> NotFound:
    return NotFound(f"there is no {kind} {shown(entity_id)}")
