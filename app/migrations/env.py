"""What Alembic runs to migrate: on the connection that `app.migrate` gives it, in one transaction."""

from __future__ import annotations

from alembic import context

from app.db import SCHEMA
from app.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table_schema=SCHEMA,
    include_schemas=True,
    include_name=lambda name, kind, _: kind != "schema" or name == SCHEMA,
)
context.run_migrations()
