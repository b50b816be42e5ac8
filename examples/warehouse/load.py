"""The world outside: data arrives, a simulated day in a few seconds, from some time ago up to the present.

Facts and the parameter that tells of them are committed together. Payments come late, and now and then not for two
days; the catalogue comes once a week; what is `live` follows the real clock, and the stock is counted with pauses.
"""

from __future__ import annotations

import argparse
import random
import time
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from tidemill import TidemillError, ctl, transaction
from warehouse.models import Fact, create_tables
from warehouse.proof import prove

DAY, STEP = timedelta(days=1), timedelta(hours=6)
LINE_SECONDS = 4.0
COUNTING_SECONDS, PERIOD_SECONDS = 12, 30


def begin(days_ago: int) -> datetime:
    """Where the last loader has stopped, or so many days ago."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return ctl.get("raw.orders", "loaded_to") or midnight - days_ago * DAY


def arrive(session: Session, source: str, until: datetime, facts: int) -> None:
    """Facts of a source from where it has got to up to `until`, and the news of them, in one transaction."""
    since = ctl.get(f"raw.{source}", "loaded_to", session=session) or until - STEP
    if until <= since:
        return
    length = (until - since).total_seconds()
    rows = [
        {
            "dataset": f"raw.{source}",
            "at": until - timedelta(seconds=random.uniform(0, length * 0.999)),  # noqa: S311
            "amount": random.randint(5, 200),  # noqa: S311
        }
        for _ in range(facts)
    ]
    session.execute(sa.insert(Fact), rows)
    ctl.advance(f"raw.{source}", session=session, loaded_to=until)


def step(until: datetime) -> None:
    """What arrives in six hours."""
    with transaction() as session:
        arrive(session, "orders", until, 3)
        arrive(session, "clicks", until, 5)
        if until.toordinal() % 14 not in (0, 1):
            arrive(session, "payments", until - timedelta(hours=random.randint(0, 12)), 2)  # noqa: S311
        if until.hour == 0:
            arrive(session, "returns", until, 1)
            arrive(session, "rates", until, 1)
            if until.weekday() == 0:
                arrive(session, "catalogue", until, 4)


def follow_the_clock() -> None:
    now = datetime.now(UTC)
    with transaction() as session:
        ctl.advance("live.events", session=session, seen_at=now)
        if now.timestamp() % PERIOD_SECONDS < COUNTING_SECONDS:
            ctl.advance("live.stock", session=session, counted_at=now)


def show() -> None:
    reached, mart = ctl.get("raw.orders", "loaded_to"), ctl.get("mart.daily_sales", "built_to")
    proof = prove()
    words = "; ".join(proof.wrong) or f"{proof.increments} increments, each of them once"
    print(f"warehouse: raw data to {_date(reached)}, the mart of daily sales to {_date(mart)}; {words}", flush=True)


def _date(value: datetime | None) -> str:
    return "nowhere" if value is None else f"{value:%Y-%m-%d %H:%M}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=None, help="stop after so many")
    parser.add_argument("--ago", type=int, default=730, help="how many days ago the data begins")
    parser.add_argument("--day-seconds", type=float, default=2.0, help="how long a simulated day takes")
    options = parser.parse_args()
    create_tables()
    at = begin(options.ago)
    end = None if options.days is None else at + options.days * DAY
    next_line = 0.0
    while end is None or at < end:
        try:
            if at + STEP <= datetime.now(UTC):
                step(at + STEP)
                at += STEP
            follow_the_clock()
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + LINE_SECONDS
                show()
        except (TidemillError, SQLAlchemyError) as error:
            print(f"the loader waits: {error}", flush=True)
        time.sleep(options.day_seconds * (STEP / DAY))
    show()


if __name__ == "__main__":
    main()
