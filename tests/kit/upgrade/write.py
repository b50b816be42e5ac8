"""Puts work in, by the public names of the release whose code it runs under: `python -m tests.kit.upgrade.write WHAT`.

`worked`: what its worker is to do, to fail at, and to be killed at. `waiting`: what nobody has taken yet. `stream`: one
order after the other, each with its job, until the file STREAM_UNTIL is there, and the levels of STREAM_RIVER.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import sqlalchemy as sa

from app import limits
from app.celery import app as celery_app
from app.db import transaction
from tests.kit.upgrade import parcels
from tests.kit.waiting import pause
from tidemill import cancel, enqueue, enqueue_many, periodic, prioritize, snooze

#: Not in the first release.
REACTIVE = find_spec("triggers.ctl") is not None


def tables() -> None:
    made = list(parcels.TABLES)
    if REACTIVE:
        made += import_module("tests.kit.upgrade.rivers").TABLES
    with transaction() as session:
        for statement in made:
            session.execute(sa.text(statement))


def worked() -> None:
    for number in range(3):
        enqueue(parcels.deliver.s("done", number))
    enqueue(parcels.stumble.s("parked"))
    enqueue(parcels.postpone.s("postponed"))
    enqueue(parcels.stand.s("claimed"), priority=3)
    if REACTIVE:
        _levels({"source": 1, "dam": 1, "marsh": 1})


def more() -> None:
    """For those that have run: the second day, at which one of them is killed."""
    if REACTIVE:
        _levels({"source": 2, "dam": 2})


def waiting() -> None:
    with transaction() as session:
        limits.configure(session, "halted", paused=True)
        limits.configure(session, "narrow", max_parallel=1, rate="50/s", burst=5.0)
    for what, (args, kwargs) in parcels.KINDS.items():
        enqueue(parcels.deliver.s(what, *args, **kwargs))
    for number in range(2):
        enqueue(parcels.deliver.s("keyed", number), key="the one")
    enqueue(parcels.deliver.s("first"), priority=7)
    enqueue(parcels.deliver.s("narrow"), queue="narrow")
    enqueue(parcels.deliver.s("halted"), queue="halted")
    enqueue(parcels.deliver.s("late"), eta=datetime(2999, 1, 1, tzinfo=UTC))
    enqueue(parcels.deliver.s("over"), expires=0.001)
    enqueue(parcels.deliver.s("once"), max_attempts=1)
    enqueue_many([parcels.bundle.s(number) for number in range(25)])
    snooze(enqueue(parcels.deliver.s("snoozed")), timedelta(days=3650))
    prioritize(enqueue(parcels.deliver.s("urgent")), 9)
    cancel(enqueue(parcels.deliver.s("cancelled")))
    with transaction() as session:
        by_sql = "SELECT tidemill.enqueue('tests.kit.upgrade.parcels.deliver', '[\"by sql\"]', '{\"plain\": true}')"
        session.execute(sa.text(by_sql))
    periodic(parcels.deliver.s("daily"), cron="0 6 * * *", tz="Europe/Berlin", name="daily")
    periodic(parcels.deliver.s("often"), every="10min", catch_up="all", name="often", priority=2)
    periodic(parcels.deliver.s("skipped"), every="1h", catch_up="none", name="skipped")
    if REACTIVE:
        _levels({"source": 3})


def stream() -> None:
    who, river = os.environ["STREAM_NAME"], os.environ["STREAM_RIVER"]
    number = 0
    while not Path(os.environ["STREAM_UNTIL"]).exists():
        number += 1
        with transaction() as session:
            session.execute(
                sa.text("INSERT INTO public.ordered VALUES (:who, :number)"), {"who": who, "number": number}
            )
            enqueue(parcels.deliver.s(who, number), session=session)
        if number % 10 == 0:
            _levels({river: number // 10})
        pause(0.01)


def _levels(days: dict[str, int]) -> None:
    rivers, ctl = import_module("tests.kit.upgrade.rivers"), import_module("triggers.ctl")
    for entity, day in days.items():
        ctl.advance(f"river.{entity}", level=rivers.day(day))


if __name__ == "__main__":
    assert str(limits.__file__).startswith(os.environ["RELEASE_CODE"]), limits.__file__
    celery_app.finalize()
    {each.__name__: each for each in (tables, worked, more, waiting, stream)}[sys.argv[1]]()
