"""Large tables of earlier revisions, and which of them a migration reads or writes as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

#: What grows with the work that was done; by the revision that made it.
LARGE: dict[str, tuple[str, ...]] = {
    "0001": ("job", "job_log"),
    "0002": ("audit", "ctl_change", "evaluation"),
    "0004": ("stage_visit", "stage_state"),
    "0005": ("event",),
    "0006": ("process", "task", "decision", "answer", "broken_task"),
    "0007": ("repair",),
}
#: A value of each row, by type; the rest have defaults, or may be null.
_VALUES = {
    "text": "'row ' || n",
    "text[]": "'{}'",
    "bigint": "n",
    "integer": "n % 2000000000",
    "smallint": "1",
    "boolean": "false",
    "timestamp with time zone": "now() - n * interval '1 second'",
    "json": "'{}'",
    "jsonb": "'{}'",
    "uuid": "gen_random_uuid()",
    "bytea": "'x'",
    "xid8": "pg_current_xact_id()",
    "tidemill.job_outcome": "'done'",
    "tidemill.task_state": "'FINISHED'",
}
#: Where others would not be like real ones.
_OWN = {
    ("stage_visit", "due_at"): "now()",
    ("broken_task", "message"): "'order ' || n || ' of \"anna\" has no weight'",
    ("process", "error"): "CASE WHEN n % 10 = 0 THEN 'task ' || n || ' of actor ship broke: no weight' END",
    ("process", "attributes"): "jsonb_build_object('shop', 'north ' || n % 100)",
}
_NEEDED = sa.text(
    """
    SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
    WHERE attrelid = CAST('tidemill.' || :table AS regclass) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
        AND attidentity = '' AND attnotnull AND NOT atthasdef
    ORDER BY attnum
    """
)
_FILES = sa.text(
    """
    SELECT c.relname, c.relfilenode, i.relname, i.relfilenode
    FROM pg_class c LEFT JOIN pg_index ON indrelid = c.oid LEFT JOIN pg_class i ON i.oid = indexrelid
    WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace('tidemill')
    """
)


@dataclass(frozen=True)
class Whole:
    """What a migration went through from its first row to its last one, of the tables that there were."""

    #: Written anew.
    rewritten: tuple[str, ...]
    #: Read for indexes: these.
    indexed: tuple[str, ...]


#: By table, then by index: where the rows are.
Files = dict[str, tuple[int, dict[str, int]]]


def files(connection: Connection) -> Files:
    found: Files = {}
    for table, file, index, of_index in connection.execute(_FILES):
        _, indexes = found.setdefault(table, (file, {}))
        if index is not None:
            indexes[index] = of_index
    return found


def whole(before: Files, after: Files) -> Whole:
    """A table that is rewritten has its indexes made anew: it is enough to name it."""
    large = before.keys() & {table for tables in LARGE.values() for table in tables}
    rewritten = {table for table in large if after[table][0] != before[table][0]}
    indexed = {
        index
        for table in large - rewritten
        for index, file in after[table][1].items()
        if before[table][1].get(index) != file
    }
    return Whole(tuple(sorted(rewritten)), tuple(sorted(indexed)))


def fill(connection: Connection, table: str, count: int) -> None:
    needed = connection.execute(_NEEDED, {"table": table}).all()
    values = {name: _OWN.get((table, name)) or _VALUES[kind] for name, kind in needed}
    values |= {column: value for (name, column), value in _OWN.items() if name == table}
    query = f"INSERT INTO tidemill.{table} ({', '.join(values)}) SELECT {', '.join(values.values())} "
    connection.exec_driver_sql(f"{query} FROM generate_series(1, {count}) AS n".replace("%", "%%"))
