"""What a person does with a queue by hand: paused, resumed, limited for the whole cluster, and audited."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import audit, limits, workers
from app.db import transaction
from app.jobs.model import Job, KnownTask
from app.limits import Queue
from processes.model import PREFERENCES
from processes.model import queue_of as actor_queue
from stages.definition import PREFIX
from stages.model import Stage
from triggers.definition import queue_of
from triggers.model import ReactivePool


def pause(name: str, *, reason: str | None = None) -> bool:
    """Nothing more of it is started; what runs may end. Whether anybody knows such a queue."""
    return _configured(name, "pause", reason, paused=True)


def resume(name: str, *, reason: str | None = None) -> bool:
    return _configured(name, "resume", reason, paused=False)


def limit(name: str, *, reason: str | None = None, **changes: Any) -> bool:
    """`rate`, `max_parallel`, `burst`; what is left out stays."""
    return _configured(name, "limit", reason, **changes)


def _configured(name: str, action: str, reason: str | None, **changes: Any) -> bool:
    with transaction() as session:
        known = is_known(session, name)
        limits.configure(session, name, **changes)
        audit.record(session, f"queue.{action}", name, reason=reason, **(changes if action == "limit" else {}))
        return known


def is_known(session: Session, name: str) -> bool:
    """Some task, job, pool, stage, actor, live worker or limit is of it."""
    known = (
        sa.select(Queue.name).where(Queue.name == name),
        sa.select(KnownTask.queue).where(KnownTask.queue == name),
        sa.select(Job.queue).where(Job.queue == name).limit(1),
        sa.select(ReactivePool.name).where(queue_of("") + ReactivePool.name == name),
        sa.select(Stage.name).where(f"{PREFIX}." + Stage.kind + "." + Stage.name == name),
        sa.select(PREFERENCES.c.name).where(actor_queue("") + PREFERENCES.c.name == name),
    )
    return any(session.execute(query.limit(1)).first() for query in known) or name in workers.slots(session)
