"""Very many rows at once, by COPY."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from sqlalchemy.engine import Engine


def copy(engine: Engine, table: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
    """None is null; no text has a tab, a line end or a backslash in it."""
    text = io.StringIO("".join("\t".join("\\N" if each is None else str(each) for each in row) + "\n" for row in rows))
    connection = engine.raw_connection()
    try:
        connection.cursor().copy_expert(f"COPY tidemill.{table} ({columns}) FROM STDIN", text)
        connection.commit()
    finally:
        connection.close()


def analyzed(engine: Engine, *tables: str) -> None:
    """With statistics of them, or of all."""
    names = ", ".join(f"tidemill.{name}" for name in tables)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"VACUUM ANALYZE {names}")
