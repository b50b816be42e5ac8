"""Whether every seller whose offer was taken down was told, and nobody twice; `python -m notify.proof` says it, and
exits with 1 if not. With `--within 30`, all must have been told by then."""

from __future__ import annotations

import argparse
import sys
import time

import sqlalchemy as sa
from classifieds.models import TAKEN_DOWN, Offer
from sqlalchemy.orm import Session

from notify import words
from notify.models import Notification
from tidemill import transaction


def untold(session: Session) -> list[str]:
    """Offers that a stage has taken down, whose sellers know nothing of it."""
    told = sa.exists().where(Notification.offer_id == Offer.id, Notification.about == words.TAKEN_DOWN)
    return list(session.scalars(sa.select(Offer.id).where(Offer.status == TAKEN_DOWN, ~told).order_by(Offer.id)))


def twice(session: Session) -> list[str]:
    """The constraint would have to be gone."""
    key = (Notification.offer_id, Notification.sequence)
    found = session.execute(sa.select(*key).group_by(*key).having(sa.func.count() > 1))
    return [f"{offer_id} at {sequence}" for offer_id, sequence in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--within", type=float, default=0, help="wait until all are told, so many seconds")
    options = parser.parse_args()
    end = time.monotonic() + options.within
    while True:
        with transaction() as session:
            missing, doubled = untold(session), twice(session)
            count = session.scalar(sa.select(sa.func.count()).select_from(Notification))
        if not missing or time.monotonic() >= end:
            break
        time.sleep(0.5)
    said = [
        *(f"nobody was told that {each} was taken down" for each in missing),
        *(f"{each}: twice" for each in doubled),
    ]
    print("\n".join(said) or f"{count} notifications, none twice, and none is missing")
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
