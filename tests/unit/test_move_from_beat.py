"""The page about moving from beat: what it says of `crontab` is so."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab
from cronsim import CronSim

from tests.kit.process import ROOT

TEXT = (ROOT / "docs" / "howto" / "move-from-beat.md").read_text()
ROWS = re.findall(r"^\| `(crontab\(.*?\))` \| `([^`]+)` \|$", TEXT, re.MULTILINE)
BEGIN = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)


def celery_times(schedule: Any, count: int) -> list[datetime]:
    found, moment = [], BEGIN
    for _ in range(count):
        schedule.nowfun = lambda: moment  # noqa: B023
        moment += schedule.remaining_estimate(moment)
        moment = moment.replace(microsecond=0)
        found.append(moment)
    return found


def cron_times(line: str, count: int) -> list[datetime]:
    found = CronSim(line, BEGIN)
    return [next(found) for _ in range(count)]


@pytest.fixture(scope="module")
def app() -> Celery:
    return Celery("utc", set_as_current=False)


@pytest.mark.parametrize(("written", "line"), ROWS)
def test_both_fire_at_the_same_times(written: str, line: str, app: Celery) -> None:
    schedule = eval(written, {"crontab": lambda *args, **words: crontab(*args, app=app, **words)})  # noqa: S307
    assert celery_times(schedule, 40) == cron_times(line, 40)


def test_days_of_month_and_week_are_where_they_differ(app: Celery) -> None:
    assert len(ROWS) > 5
    fridays = crontab(minute=0, hour=0, day_of_month=13, day_of_week="fri", app=app)
    assert celery_times(fridays, 1) == [datetime(2026, 2, 13, tzinfo=UTC)]
    assert cron_times("0 0 13 * fri", 1) == [datetime(2026, 1, 2, tzinfo=UTC)]
