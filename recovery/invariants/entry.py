"""One entry of the catalogue: what must hold, how what violates it is found, and what is done about it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from app.claims import Executor
from recovery import record
from recovery.findings import Verdict

#: Of the row, or of what else violates it: the primary key.
Key = tuple[Any, ...]
Look = Callable[[Executor, int], list[Key]]
QUEUE, EVENT, OPERATION = "queue", "event", "operation"
DOMAINS = (*record.DOMAINS, QUEUE, EVENT, OPERATION)
#: So many rows, the newest where they have an age, are read by what no index can find.
BOUND = 100_000


def nothing() -> None:
    """What is to be done after most commits."""


@dataclass(frozen=True)
class Done:
    """What a repair came to, by the key of what violated the invariant; `after`: to be called after the commit."""

    actions: Mapping[Key, str] = field(default_factory=dict)
    after: Callable[[], None] = nothing
    #: It has been recorded already.
    recorded: bool = False


Repair = Callable[[Session, Sequence[Key]], Done]


@dataclass(frozen=True)
class Invariant:
    name: str
    domain: str
    verdict: Verdict
    #: The word under which a repair is recorded and counted.
    finding: str
    look: Look
    #: What is done about it; of a diagnosis, by whom.
    cure: str
    repair: Repair | None = None
    #: So many rows are looked at at most.
    bound: int | None = None

    @property
    def counter(self) -> str:
        return f"repaired.{self.finding}"

    @property
    def wrong(self) -> bool:
        """Whether it is damage where this does not hold."""
        return self.verdict in (Verdict.REPAIRABLE, Verdict.BROKEN)

    def subject(self, key: Key) -> str:
        """As in the record of repairs: `17/3`, `offer 12 expire`."""
        return ("/" if self.domain == record.PROCESS else " ").join(str(each) for each in key)


def selecting(query: sa.Select[Any] | sa.CompoundSelect[Any] | Callable[[], sa.Select[Any]]) -> Look:
    """By a query of keys; built anew each time where it rests on the settings."""

    def look(executor: Executor, limit: int) -> list[Key]:
        found = query() if callable(query) else query
        return [tuple(row) for row in executor.execute(found.limit(limit)).all()]

    return look


def by_keys(columns: Sequence[sa.ColumnElement[Any]], keys: Collection[Key]) -> sa.ColumnElement[bool]:
    """The rows with these keys, as one array a column."""
    named = [sa.column(f"key_{i}", each.type) for i, each in enumerate(columns)]
    arrays = [sa.cast([key[i] for key in keys], Array(each.type)) for i, each in enumerate(columns)]
    wanted = sa.func.unnest(*arrays).table_valued(*named).render_derived(name="wanted")
    return sa.tuple_(*columns).in_(sa.select(*wanted.c))
