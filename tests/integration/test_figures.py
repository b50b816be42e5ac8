"""What `tidemill status` and the overview of the console count."""

from __future__ import annotations

from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import figures
from app.workers import Worker


def test_a_worker_that_told_of_itself_since_the_look_began_did_so_just_now(session: Session) -> None:
    # In a transaction of several statements, rows that were committed meanwhile are seen, and lie ahead of its `now()`.
    later = {"beat_at": sa.func.now() + timedelta(seconds=1)}
    session.execute(sa.insert(Worker).values(name="w@a", queues=["jobs"], slots=1, pid=1, **later))
    [worker] = figures.live_and_gone(session)
    assert (worker.last_beat, worker.alive) == (timedelta(0), True)
