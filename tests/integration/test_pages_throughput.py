"""What has ended in the last hour, by minute, on the first page."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.console.pages import throughput
from processes.model import PREFERENCES, PROCESS
from tests.kit import process_crowd
from tests.kit.pages import signed_in
from tests.kit.pages_jobs import entry
from triggers.model import RUN


def minutes_ago(session: Session, minutes: int) -> datetime:
    """In the middle of one of the minutes before this one."""
    at: datetime = session.execute(sa.select(sa.func.date_trunc("minute", sa.func.now()))).scalar_one()
    return at - timedelta(minutes=minutes, seconds=-30)


def test_what_ended_is_counted_by_minute(session: Session) -> None:
    process_crowd.fill(session.get_bind(), 200)  # type: ignore[arg-type]
    session.execute(sa.update(PROCESS).where(PROCESS.c.ended_at.is_not(None)).values(ended_at=minutes_ago(session, 30)))
    ended = session.scalar(sa.select(sa.func.count()).where(PROCESS.c.ended_at.is_not(None)))
    for minutes, outcome in ((0, "done"), (1, "done"), (1, "failed"), (59, "done"), (61, "done")):
        entry(session, 1, "shop.mail", outcome, ended_at=minutes_ago(session, minutes))
    run = {"task": "t", "queue": "q", "priority": 0, "generation": 0, "state": "done"}
    session.execute(sa.insert(RUN).values(**run, ended_at=minutes_ago(session, 7)))
    found = throughput.read(session)
    assert session.scalar(sa.select(sa.func.count()).select_from(PREFERENCES)) == 4
    told = {kind: (each.total, each.most, each.last) for kind, each in found.sparks.items()}
    assert told == {"Jobs": (3, 2, 2), "Reactive runs": (1, 1, 0), "Processes": (ended, ended, 0)}
    assert len(found.steps) == 12
    assert [counts[0] for _, counts in found.steps] == [1, *[0] * 10, 2]
    assert found.steps[-1][0] + timedelta(minutes=5) == found.until


def test_of_very_many_no_more_are_counted(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "COUNTED", 2)
    for _ in range(3):
        entry(session, 1, "shop.mail", "done", ended_at=minutes_ago(session, 1))
    session.commit()
    with signed_in() as person:
        page = person.get("/")
    assert "Jobs: 2+ ended in the last hour, at most 2+ in a minute" in page.text
    assert "Processes: 0 ended in the last hour" in page.text
