"""What a restart would call again, though it says of itself that it must not be called twice."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from processes.model import DECISION, PREFERENCES, TASK


def called(connection: Connection, process_id: int) -> dict[int, str]:
    """The tasks, with their actors, that may have been called: how often one was before it was last restarted is not
    known."""
    may_have_been = sa.or_(DECISION.c.attempts > 0, DECISION.c.epoch > 0)
    same = sa.and_(DECISION.c.process_id == TASK.c.process_id, DECISION.c.number == TASK.c.number)
    query = (
        sa.select(TASK.c.number, TASK.c.actor)
        .select_from(TASK.join(PREFERENCES, PREFERENCES.c.name == TASK.c.actor).join(DECISION, same))
        .where(TASK.c.process_id == process_id, ~PREFERENCES.c.repeatable, may_have_been)
        .order_by(TASK.c.number)
    )
    return {row.number: row.actor for row in connection.execute(query)}
