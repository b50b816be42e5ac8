"""Following the control table: every change once, in whatever order transactions commit."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.db import transaction
from triggers import ctl
from triggers.model import Ctl, CtlChange

T = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def other(engine: Engine) -> Iterator[Session]:
    """A second connection."""
    with Session(engine) as found:
        yield found


def values_of(changes: list[ctl.Change]) -> list[str]:
    return [each.parameter for each in changes]


def test_following_misses_nothing_that_commits_late(session: Session, other: Session) -> None:
    """Not the change of a transaction that was open from the start, nor of one that began and ended between."""
    ctl.advance("a", old=T)
    ctl.advance("a", session=session, from_the_start=T)
    follower = ctl.Follower()
    ctl.advance("a", between=T)
    assert values_of(follower.new()) == ["between"]
    ctl.advance("b", session=other, opened_later=T)
    ctl.advance("a", quick=T)
    assert values_of(follower.new()) == ["quick"]
    assert follower.new() == []
    session.commit()
    assert values_of(follower.new()) == ["from_the_start"]
    ctl.advance("b", session=other, more_of_it=T)
    assert follower.new() == []
    other.commit()
    assert values_of(follower.new()) == ["opened_later", "more_of_it"]
    assert follower.new() == []


def test_following_a_writer_that_the_snapshot_does_not_name(session: Session, other: Session) -> None:
    """A snapshot ends at the last transaction that was over: one above that is not in its list, and may have had its
    ids for long."""
    follower = ctl.Follower()
    session.execute(sa.text("SELECT pg_current_xact_id()"))  # the lower number, and the higher id
    ctl.advance("a", session=other, slow=T)
    # Not by ctl.advance, whose savepoint would have a number of its own, above both.
    session.execute(sa.text("SELECT tidemill.advance('a', 'quick', '2026-07-01Z')"))
    session.commit()
    assert values_of(follower.new()) == ["quick"]
    other.commit()
    assert values_of(follower.new()) == ["slow"]


def test_following_a_pattern_and_what_is_rolled_back(session: Session) -> None:
    follower = ctl.Follower("mart.*")
    ctl.advance("mart.a", session=session, gone=T)
    ctl.advance("dds.a", not_asked_for=T)
    session.rollback()
    ctl.advance("mart.a", asked_for=T)
    assert values_of(follower.new()) == ["asked_for"]


def test_following_many_writers(engine: Engine, session: Session) -> None:
    follower, seen = ctl.Follower(), []

    def write(writer: int) -> None:
        for step in range(40):
            with transaction() as tx:
                for part in range(3):
                    ctl.advance(f"w{writer}", session=tx, **{f"p{part}": T + timedelta(seconds=step)})

    with ThreadPoolExecutor(4) as threads:
        ends = [threads.submit(write, writer) for writer in range(4)]
        while not all(each.done() for each in ends):
            seen += follower.new()
    seen += follower.new()
    assert [each.result() for each in ends] == [None] * 4
    assert sorted(each.id for each in seen) == sorted(session.scalars(sa.select(CtlChange.id)))
    assert len(seen) == 480
    assert session.scalar(sa.select(sa.func.sum(Ctl.version))) == 480
