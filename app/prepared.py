"""Statements that the server keeps parsed and planned, for the few that every piece of work goes through.

The driver sends text, which costs the server more to parse and plan than to run: 0.8 ms a claim against 0.4. So a hot
statement is prepared by name on each connection, when it is first used there.

- A plan outlives the table that it was made for: made when the queue was empty, it may read a full one from end to end.
  So what was slow is prepared anew, and everything after a while.
- Behind a pooler that changes the server under a connection (PgBouncer in transaction mode), names vanish: the first
  failure of that kind turns preparing off for this process.
- Only for single statements (`autocommit`): a failure within a transaction could not be repaired.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Connection, Result
from sqlalchemy.exc import DBAPIError

log = logging.getLogger(__name__)

OLD_SECONDS = 60.0
SLOW_SECONDS, SLOW_AGE_SECONDS = 0.005, 0.5
#: invalid_sql_statement_name, duplicate_prepared_statement
_VANISHED = ("26000", "42P05")
#: feature_not_supported: a migration has changed what the statement returns.
_OUTDATED = "0A000"
_DIALECT = postgresql.dialect(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]


class Prepared:
    """One statement under one name; `columns` type what it returns."""

    usable = True

    def __init__(self, name: str, statement: Any) -> None:
        compiled = statement.compile(dialect=_DIALECT)
        self.name = f"tidemill_{name}"
        self._statement = statement
        self._fixed = dict(compiled.params)
        self._order: list[str] = list(compiled.positiontup or ())
        self._prepare = f"PREPARE {self.name} AS {compiled.string}"
        types = {name: compiled.binds[name].type for name in self._order}
        columns = list(statement.selected_columns) if statement.is_select else list(statement.exported_columns)
        words = sa.text(f"EXECUTE {self.name}({', '.join(f':{name}' for name in self._order)})")
        bound = words.bindparams(*(sa.bindparam(name, type_=types[name]) for name in self._order))
        self._execute = bound.columns(*columns)

    def execute(self, connection: Connection, parameters: Mapping[str, Any]) -> Result[Any]:
        if not Prepared.usable:
            return connection.execute(self._statement, parameters)
        made: dict[str, float] = connection.connection.info.setdefault("tidemill.prepared", {})
        begun = time.monotonic()
        try:
            if begun - made.get(self.name, begun) > OLD_SECONDS:
                self._forget(connection, made)
            if self.name not in made:
                self._driver(connection, self._prepare)
                made[self.name] = begun
            result = connection.execute(self._execute, {**self._fixed, **parameters})
        except DBAPIError as error:
            code = getattr(error.orig, "pgcode", None)
            if code == _OUTDATED:
                self._forget(connection, made)
            elif code in _VANISHED:
                log.warning("prepared statements do not last here (a pooler?): they are not used any more")
                Prepared.usable = False
            else:
                raise
            return connection.execute(self._statement, parameters)
        ended = time.monotonic()
        if ended - begun > SLOW_SECONDS and ended - made[self.name] > SLOW_AGE_SECONDS:
            # Marked only: the statement is committed, and nothing after it may fail.
            made[self.name] = -math.inf
        return result

    def _forget(self, connection: Connection, made: dict[str, float]) -> None:
        del made[self.name]
        self._driver(connection, f"DEALLOCATE {self.name}")

    @staticmethod
    def _driver(connection: Connection, text: str) -> None:
        connection.exec_driver_sql(text.replace("%", "%%"))
