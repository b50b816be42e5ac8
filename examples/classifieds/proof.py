"""Whether every offer that the stages have come to rest with is as it should be, whoever has changed it since;
`python -m classifieds.proof` says it, and exits with 1 if not. With `--within 60`, all must have come to rest by then.

An offer is at rest when no stage is to visit it: what is left are timers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from classifieds.catalogue import CURRENT, place, predicted
from classifieds.models import ON_AIR, Offer
from classifieds.stages import EXPOSURE
from tidemill import stages, transaction

#: The stages that set timers. What waits for any other is work.
TIMERS = {"take_down", "check_video"}


@dataclass(frozen=True)
class Proof:
    offers: int
    resting: int
    wrong: tuple[str, ...]


def prove(latest: int | None = None) -> Proof:
    """Of all offers, or of those that were published last."""
    with transaction() as session:
        # All that is compared is of one moment.
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        offers = session.scalars(sa.select(Offer).order_by(Offer.published_at.desc()).limit(latest)).all()
        now = session.execute(sa.select(sa.func.now())).scalar_one()
        resting, wrong = 0, []
        for offer in offers:
            visits = dict(stages.queue.check(offer, session=session))
            if visits.keys() <= TIMERS and all(at > now for at in visits.values()):
                resting += 1
                wrong += [f"{offer.id} {words}" for words in _wrong(offer, visits)]
    return Proof(len(offers), resting, tuple(wrong))


def _wrong(offer: Offer, timers: dict[str, datetime]) -> Iterator[str]:
    if offer.catalogue != CURRENT:
        yield f"is of catalogue {offer.catalogue}"
    if offer.predicted_price != predicted(offer.category, offer.year, offer.mileage):
        yield f"has the predicted price {offer.predicted_price}, which is that of another car"
    if any("stored" not in each for each in offer.photos):
        yield "has photos that were not fetched"
    places = [place(each.get("angle")) for each in offer.photos]
    if places != sorted(places):
        yield "has photos that are not in order"
    if offer.status == ON_AIR and offer.published_at is not None:
        at = timers.get("take_down")
        if at is None or at > offer.published_at + EXPOSURE:
            yield f"is to be taken down {'never' if at is None else f'at {at}'}"
    if (offer.video is None) is not (timers.get("check_video") is None):
        yield f"has the video {offer.video}, and its next check is at {timers.get('check_video')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--within", type=float, default=None, help="wait until all are at rest, so many seconds")
    options = parser.parse_args()
    proof, end = prove(), time.monotonic() + (options.within or 0)
    while proof.resting < proof.offers and time.monotonic() < end:
        time.sleep(0.5)
        proof = prove()
    restless = proof.offers - proof.resting if options.within is not None else 0
    said = [*proof.wrong, *([f"{restless} offers have not come to rest"] if restless else [])]
    print("\n".join(said) or f"{proof.offers} offers, {proof.resting} of them at rest, each as it should be")
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
