"""The history of the schema `tidemill`, in Alembic revisions; functions of the database are in `sql/`."""

from __future__ import annotations

from importlib.resources import files

from alembic import op


def run_sql(name: str) -> None:
    text = (files("app") / "migrations" / "sql" / name).read_text()
    # The driver takes a percent sign for a parameter.
    op.get_bind().exec_driver_sql(text.replace("%", "%%"))
