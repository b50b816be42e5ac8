"""The next number of a row is one that no row has: not so where tables were restored, and their sequences not."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import locks
from app.claims import Executor
from app.db import SCHEMA
from app.jobs.model import JOB, JOB_LOG
from app.outbox.model import EVENT as EVENTS
from processes.model import GRAPH, PROCESS
from recovery import record
from recovery.findings import Verdict
from recovery.invariants.entry import EVENT, OPERATION, Done, Invariant, Key
from recovery.operations.model import ITEM
from recovery.operations.model import OPERATION as OPERATIONS
from triggers.model import RUN

#: By domain: the noun, the table whose numbers these are, and every column that holds one and has an index.
_NUMBERED: dict[str, tuple[str, str, tuple[sa.Column[int], ...]]] = {
    record.JOB: ("job", "job", (JOB.c.id, JOB_LOG.c.job_id)),
    record.RUN: ("run", "run", (RUN.c.id,)),
    record.PROCESS: ("process", "process", (PROCESS.c.id, GRAPH.c.process_id)),
    OPERATION: ("operation", "operation", (OPERATIONS.c.id, ITEM.c.operation_id)),
    EVENT: ("event", "event", (EVENTS.c.id,)),
}


def _behind(executor: Executor, table: str, columns: Sequence[sa.Column[int]]) -> int | None:
    """The highest number that there is, where the sequence has not come so far."""
    highest = [executor.execute(sa.select(sa.func.max(column))).scalar_one() or 0 for column in columns]
    sequence = sa.table(f"{table}_id_seq", sa.column("last_value"), sa.column("is_called"), schema=SCHEMA)
    last = executor.execute(sa.select(sequence)).one()
    next_ = last.last_value + bool(last.is_called)
    return max(highest) if next_ <= max(highest) else None


def _of(domain: str) -> Invariant:
    noun, table, columns = _NUMBERED[domain]
    name = f"{SCHEMA}.{table}_id_seq"

    def look(executor: Executor, limit: int) -> list[Key]:
        return [(name,)][:limit] if _behind(executor, table, columns) is not None else []

    def repair(session: Session, keys: Sequence[Key]) -> Done:
        # One at a time: it must not be set back.
        locks.take_of(session, name)
        highest = _behind(session, table, columns)
        if highest is None:
            return Done()
        session.execute(sa.select(sa.func.setval(name, highest)))
        return Done(dict.fromkeys(keys, "moved on"))

    return Invariant(
        f"the next {noun} has a number of its own",
        domain,
        Verdict.REPAIRABLE,
        f"{noun}_number_taken",
        look,
        "the sequence moves on behind the last one",
        repair,
    )


OF_NUMBERS: tuple[Invariant, ...] = tuple(_of(domain) for domain in _NUMBERED)
