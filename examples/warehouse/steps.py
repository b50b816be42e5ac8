"""The two things that tasks do with an increment, each in one transaction with the end of their run.

What they promise: what lies between `since` and `until` is processed once. `run.transaction()` commits the facts, last
seen and the parameter that is advanced together, or nothing of it; so a run that fails half way, or loses its worker,
leaves no trace.
"""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from tidemill import Run
from warehouse.models import Fact, Figure, Increment

LOADED, BUILT = "loaded_to", "built_to"


def stage(run: Run, name: str) -> None:
    """Takes over what is new of a source."""
    _, until = run.window(f"raw.{name}", LOADED)
    run.advance(f"staging.{name}", loaded_to=until)
    with run.transaction() as session:
        move(session, run, f"raw.{name}", LOADED, f"staging.{name}")


def detail(run: Run, source: str, target: str) -> None:
    """Works out what is new of one staged data set."""
    _, until = run.window(source, LOADED)
    run.advance(target, built_to=until)
    with run.transaction() as session:
        move(session, run, source, LOADED, target)


def total(run: Run, source: str, mart: str, per: str) -> None:
    """Adds what is new to the lines of a mart."""
    _, until = run.window(source, BUILT)
    run.advance(mart, built_to=until)
    with run.transaction() as session:
        add(session, run, source, BUILT, mart, per)


def move(session: Session, run: Run, source: str, parameter: str, target: str) -> None:
    since, until = run.window(source, parameter)
    new = sa.select(sa.literal(target), Fact.at, Fact.amount).where(_new(source, since, until))
    insert = sa.insert(Fact).from_select(["dataset", "at", "amount"], new)
    moved = len(session.execute(insert.returning(Fact.id)).all())
    session.add(Increment(task=run.task, source=source, target=target, since=since, until=until, facts=moved))


def add(session: Session, run: Run, source: str, parameter: str, mart: str, per: str) -> None:
    since, until = run.window(source, parameter)
    new = _new(source, since, until)
    period = sa.func.date_trunc(per, Fact.at, "UTC").label("period")
    lines = sa.select(sa.literal(mart), period, sa.func.count(), sa.func.sum(Fact.amount)).where(new).group_by(period)
    insert = postgresql.insert(Figure).from_select(["mart", "period", "facts", "amount"], lines)
    more = {"facts": Figure.facts + insert.excluded.facts, "amount": Figure.amount + insert.excluded.amount}
    session.execute(insert.on_conflict_do_update(index_elements=["mart", "period"], set_=more))
    count = session.scalar(sa.select(sa.func.count()).where(new)) or 0
    session.add(Increment(task=run.task, source=source, target=mart, since=since, until=until, facts=count))


def _new(source: str, since: datetime | None, until: datetime) -> sa.ColumnElement[bool]:
    after = sa.true() if since is None else Fact.at > since
    return sa.and_(Fact.dataset == source, after, Fact.at <= until)
