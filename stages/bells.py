"""Rings for the system stage when a program has committed a change of an entity through its session (S7).

What is written around the ORM is found by dispatch, a moment later.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import event
from sqlalchemy.orm import Session, object_session

from app.doorbell import GENERIC
from app.jobs.enqueue import ring_after_commit
from stages.definition import SYSTEM, queue_of
from stages.watched import Watched, kinds, name_of


def _written(_mapper: Any, _connection: Any, entity: Any) -> None:
    session: Session | None = object_session(entity)
    # A program that has no stages of this kind has nothing to hurry for.
    if session is not None and (name := name_of(type(entity))) in kinds:
        ring_after_commit(session, queue_of(name, SYSTEM), GENERIC)


for _when in ("after_insert", "after_update"):
    event.listen(Watched, _when, _written, propagate=True)
