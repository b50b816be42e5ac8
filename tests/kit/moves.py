"""Which rows move from which state to which, noted by the database itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from website.machines import MACHINES, Machine, Outside

_NOTE = f"""
CREATE TABLE public.moved (table_name text, source text, target text, PRIMARY KEY (table_name, source, target));
GRANT ALL ON public.moved TO public;
CREATE FUNCTION public.note_move() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    source text := '{Outside.NEW}';
    target text := '{Outside.GONE}';
BEGIN
    IF tg_op <> 'INSERT' THEN source := old.state::text; END IF;
    IF tg_op <> 'DELETE' THEN target := new.state::text; END IF;
    IF source <> target THEN
        INSERT INTO public.moved VALUES (tg_table_name, source, target) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
"""  # noqa: S608 - words of the kit
_WATCH = (
    "CREATE TRIGGER zz_moves AFTER INSERT OR UPDATE OR DELETE ON tidemill.{} "
    "FOR EACH ROW EXECUTE FUNCTION public.note_move()"
)


class Moves:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, machine: Machine) -> set[tuple[str, str]]:
        query = sa.text("SELECT source, target FROM public.moved WHERE table_name = :name")
        with self._engine.connect() as connection:
            return {(row.source, row.target) for row in connection.execute(query, {"name": machine.table})}


@contextmanager
def noted(engine: Engine) -> Iterator[Moves]:
    """In a database that goes with the test."""
    with engine.begin() as connection:
        connection.execute(sa.text(_NOTE))
        for machine in MACHINES:
            connection.execute(sa.text(_WATCH.format(machine.table)))
    yield Moves(engine)
