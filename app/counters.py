"""Counts that only grow, for monitoring: `work_timeout` in all (R2), `repaired.<finding>` (R7), `missed.<task>` (T23).

Touched only where something was wrong, at the end of a transaction and in the order of their names: so two of them
never wait for each other. What cannot know that it is at the end says so with `at_commit`; these come last.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Mapped, Session, mapped_column

from app.arrays import Array
from app.claims import Executor
from app.db import Model

#: Answers of actors that did not come in time.
WORK_TIMEOUT = "work_timeout"
#: Before the name of a finding that was put right, and of a reactive task that missed a window.
REPAIRED, MISSED = "repaired.", "missed."
_LATER = "tidemill.counters"


class Counter(Model):
    __tablename__ = "counter"
    __table_args__ = ({"postgresql_with": {"fillfactor": 20}},)

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[int] = mapped_column(sa.BigInteger, server_default=sa.text("0"))
    #: When it grew the last time.
    at: Mapped[datetime] = mapped_column(server_default=sa.func.clock_timestamp())


def add(executor: Executor, counts: Mapping[str, int]) -> None:
    """Once in a transaction."""
    more = sorted((name, count) for name, count in counts.items() if count)
    if not more:
        return
    rows = (
        sa.func.unnest(
            sa.cast([name for name, _ in more], Array(sa.Text)),
            sa.cast([count for _, count in more], Array(sa.BigInteger)),
        )
        .table_valued(sa.column("name", sa.Text), sa.column("value", sa.BigInteger))
        .render_derived(name="more")
    )
    insert = postgresql.insert(Counter).from_select(["name", "value"], sa.select(*rows.c).order_by(rows.c.name))
    grown = {"value": Counter.value + insert.excluded.value, "at": sa.func.clock_timestamp()}
    executor.execute(insert.on_conflict_do_update(index_elements=["name"], set_=grown))


def at_commit(session: Session, counts: Mapping[str, int]) -> None:
    """With the last words of this transaction, whatever it locks until then."""
    later: dict[str, int] = session.info.setdefault(_LATER, {})
    for name, count in counts.items():
        later[name] = later.get(name, 0) + count


@event.listens_for(Session, "before_commit")
def _before_commit(session: Session) -> None:
    if (later := session.info.get(_LATER)) and not session.in_nested_transaction():
        add(session, dict(later))
        later.clear()


@event.listens_for(Session, "after_rollback")
def _after_rollback(session: Session) -> None:
    if (later := session.info.get(_LATER)) and not session.in_nested_transaction():
        later.clear()


def named(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix)}


def read(executor: Executor) -> dict[str, int]:
    return {row.name: row.value for row in executor.execute(sa.select(Counter.name, Counter.value))}
