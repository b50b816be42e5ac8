"""The subscriber. Any number of them may run: one works, the others stand by for when it is gone."""

from __future__ import annotations

import argparse
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from classifieds.models import Offer
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from notify.models import Notification, create_tables
from notify.words import words
from tidemill import TidemillError, events, transaction

NAME, PATTERN = "notify", "offer.*"
LINE_SECONDS = 2.0


@dataclass
class Tally:
    sent: int = 0
    #: Events that came again, and were passed over.
    known: int = 0


def handle(event: events.Event, tally: Tally) -> None:
    """Once, whatever comes twice: that it was handled is committed with what it led to."""
    with transaction() as session:
        first = events.first_time(session, NAME, event)
        offer = _row(session, event.id) if event.entity is None else event.entity
        told = words(event.stage, event.fields, offer) if first and offer else None
        if told is not None:
            session.add(
                Notification(
                    offer_id=event.id, sequence=event.sequence, seller=told.seller, about=told.about, text=told.text
                )
            )
    tally.known += not first
    tally.sent += told is not None


def _row(session: Session, offer_id: str) -> Any:
    """As it is now: what is too large for a message comes without its columns."""
    columns = sa.select(Offer.__table__).where(Offer.id == offer_id)
    return session.execute(columns).mappings().one_or_none()


def follow(subscriber: events.Subscriber, tally: Tally) -> None:
    """Until it is told to stop. An event that could not be handled comes again."""
    shown = 0.0
    while True:
        try:
            for event in subscriber:
                handle(event, tally)
                if time.monotonic() >= shown + LINE_SECONDS:
                    shown = time.monotonic()
                    print(f"notify: {tally.sent} notifications; {tally.known} events came again", flush=True)
        except (TidemillError, OperationalError) as error:
            print(f"the notifications wait: {error}", flush=True)
            time.sleep(1)
        else:
            return


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    create_tables()
    tally = Tally()
    with events.Subscriber(NAME, PATTERN) as subscriber:
        # In the demo it is a thread of another program.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: subscriber.stop())
        follow(subscriber, tally)
    print(f"notify: {tally.sent} notifications; {tally.known} events came again; ended", flush=True)


if __name__ == "__main__":
    main()
