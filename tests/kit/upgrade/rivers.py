"""A user's module, the same under every release since revision 0002: reactive tasks, and what they were given."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from tests.kit.upgrade.parcels import _mended
from tests.kit.waiting import pause
from tidemill import Delta, Run, pool, reactive

TABLES = ("CREATE TABLE public.flowed (task text NOT NULL, since timestamptz, until timestamptz NOT NULL)",)
BEGIN = datetime(2021, 4, 23, tzinfo=UTC)
_FLOWED = sa.text("INSERT INTO public.flowed VALUES (:task, :since, :until)")

pool("locks", max_parallel=2)


def day(number: int) -> datetime:
    return BEGIN + timedelta(days=number)


def _flow(run: Run, task: str, entity: str, parameter: str) -> None:
    since, until = run.window(entity, parameter)
    with run.transaction() as session:
        session.execute(_FLOWED, {"task": task, "since": since, "until": until})


@reactive(Delta("river.source", "level", "1d"), produces=[("river.mouth", "level")], priority=5)
def run_down(run: Run) -> None:
    run.advance("river.mouth", level=run.window("river.source", "level")[1])
    _flow(run, "run_down", "river.source", "level")


@reactive(Delta("river.mouth", "level", "1d"))
def flow_out(run: Run) -> None:
    _flow(run, "flow_out", "river.mouth", "level")


@reactive(Delta("river.dam", "level", "1d"), pool="locks")
def hold_up(run: Run) -> None:
    """The first time, its worker is killed while it runs."""
    if run.attempt == 1 and run.window("river.dam", "level")[1] == day(2):
        pause(3600)
    _flow(run, "hold_up", "river.dam", "level")


@reactive(Delta("river.marsh", "level", "1d"), max_failures=1)
def seep(run: Run) -> None:
    """In quarantine, until somebody releases it after it was mended."""
    if not _mended():
        raise ValueError("the marsh took it")
    _flow(run, "seep", "river.marsh", "level")
