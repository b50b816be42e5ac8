"""Statements that the server keeps parsed and planned, for the few that every piece of work goes through.

The driver sends text, which costs the server more to parse and plan than to run: 0.8 ms a claim against 0.4. So a hot
statement is prepared by name on each connection, when it is first used there.

- A plan outlives the table that it was made for: made when the queue was empty, it may read a full one from end to end.
  So what was slow is prepared anew, and everything after a while. Where that did not help, because the machine is
  busy or the work is much, it is tried ever more seldom: some of the next plans are made for one use each.
- What must never read more than it needs is planned `by_index`, with a setting for its own transaction, at no round
  trip: where the statistics say that a queue is empty, as they do after each time that it was, the server would fetch
  all that waits and sort it, for each claim.
- Behind a pooler that changes the server under a connection (PgBouncer in transaction mode), names vanish: the first
  failure of that kind turns preparing off for this process.
- A single statement (`autocommit`) that fails so is executed as it is. Within a transaction nothing can be repaired:
  there it is `Unavailable`, and whoever made the transaction tries again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection, Result
from sqlalchemy.exc import DBAPIError

from app.errors import Unavailable

log = logging.getLogger(__name__)

OLD_SECONDS = 60.0
SLOW_SECONDS, SLOW_AGE_SECONDS = 0.005, 0.5
#: How often that age is doubled.
_DOUBLED_MOST = 2
_BY_INDEX = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; "
#: invalid_sql_statement_name, duplicate_prepared_statement
_VANISHED = ("26000", "42P05")
#: feature_not_supported: a migration has changed what the statement returns.
_OUTDATED = "0A000"
_DIALECT = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


@dataclass(slots=True)
class Plan:
    """Of one statement, on one connection."""

    made_at: float
    #: How often in a row it was made anew because it was slow.
    doubled: int = 0
    slow: bool = False
    gone: bool = False

    def is_over(self, now: float) -> bool:
        return self.slow or self.gone or now - self.made_at > OLD_SECONDS

    def next(self, now: float) -> Plan:
        return Plan(now, min(self.doubled + 1, _DOUBLED_MOST) if self.slow else 0)

    def measured(self, seconds: float, now: float) -> None:
        """Marked only: the statement may be committed, and nothing after it may fail."""
        if seconds > SLOW_SECONDS and now - self.made_at > SLOW_AGE_SECONDS * 2**self.doubled:
            self.slow = True


class Prepared:
    """One statement under one name; `columns` type what it returns. `by_index`: for a transaction by itself, where each
    table has an index for what is asked of it."""

    usable = True

    def __init__(self, name: str, statement: Any, *, by_index: bool = False) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        self.name = f"tidemill_{name}"
        self._statement = statement
        self._fixed = dict(compiled.params)
        self._order: list[str] = list(compiled.positiontup or ())
        self._prepare = f"PREPARE {self.name} AS {compiled.string}"
        types = {name: compiled.binds[name].type for name in self._order}
        columns = list(statement.selected_columns) if statement.is_select else list(statement.exported_columns)
        words = f"EXECUTE {self.name}({', '.join(f':{name}' for name in self._order)})"
        bound = sa.text(_BY_INDEX * by_index + words).bindparams(
            *(sa.bindparam(name, type_=types[name]) for name in self._order)
        )
        # By name and type alone: what they are made of has parameters of its own.
        self._execute = bound.columns(*(sa.column(each.key, each.type) for each in columns))

    def execute(self, connection: Connection, parameters: Mapping[str, Any]) -> Result[Any]:
        if not Prepared.usable:
            return connection.execute(self._statement, parameters)
        plans: dict[str, Plan] = connection.connection.info.setdefault("tidemill.prepared", {})
        begun = time.monotonic()
        try:
            plan = plans.get(self.name)
            if plan is None or plan.is_over(begun):
                plan = self._make(connection, plans, begun)
            result = connection.execute(self._execute, {**self._fixed, **parameters})
        except DBAPIError as error:
            code = getattr(error.orig, "pgcode", None)
            if code in _VANISHED:
                log.warning("prepared statements do not last here (a pooler?): they are not used any more")
                Prepared.usable = False
            elif code != _OUTDATED:
                raise
            if not _alone(connection):
                plans[self.name] = Plan(begun, gone=True)
                raise Unavailable("a prepared statement is gone: the transaction is to be made again") from error
            if code == _OUTDATED:
                self._forget(connection, plans)
            return connection.execute(self._statement, parameters)
        ended = time.monotonic()
        plan.measured(ended - begun, ended)
        return result

    def _make(self, connection: Connection, plans: dict[str, Plan], now: float) -> Plan:
        before = plans.get(self.name)
        if before is not None:
            self._forget(connection, plans)
        self._driver(connection, self._prepare)
        made = plans[self.name] = Plan(now) if before is None else before.next(now)
        return made

    def _forget(self, connection: Connection, plans: dict[str, Plan]) -> None:
        del plans[self.name]
        self._driver(connection, f"DEALLOCATE {self.name}")

    @staticmethod
    def _driver(connection: Connection, text: str) -> None:
        connection.exec_driver_sql(text.replace("%", "%%"))


def _alone(connection: Connection) -> bool:
    """Each statement is a transaction of its own."""
    driver: Any = connection.connection.driver_connection
    return bool(driver.autocommit)
