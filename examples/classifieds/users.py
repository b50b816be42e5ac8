"""People who write offers and edit them while the stages are at work; and another program, which knows only SQL.

With it runs the outside service that photos are fetched through.
"""

from __future__ import annotations

import argparse
import random
import time
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from classifieds.catalogue import BUILT_LAST, CATEGORIES, CURRENT
from classifieds.models import ON_AIR, TAKEN_DOWN, Offer, create_tables
from classifieds.outside import GONE, Outside
from classifieds.proof import prove
from classifieds.stages import EXPOSURE
from tidemill import TidemillError, transaction

SELLERS = ["alice", "bob", "carol", "dave"]
LINE_SECONDS = 4.0
#: Of the latest offers so many are looked at for each line.
LOOKED_AT = 50
#: What a partner sends in one statement: his offers know nothing of later catalogues, or of versions.
IMPORT = sa.text("""
    insert into classifieds_offer (id, seller, category, catalogue, year, mileage, price, status, published_at, photos)
    select 'partner-' || :batch || '-' || n, 'partner', 'auto', 1, 2000 + n, n * 10000, 5000 + n, 'on air', now(),
           jsonb_build_array(jsonb_build_object('url', 'https://partner.example/' || :batch || '/' || n || '.jpg'))
    from generate_series(1, 5) n
""")
DISCOUNT = sa.text(
    "update classifieds_offer set price = price * 9 / 10, mileage = mileage + 100 where seller = :seller"
)
REPUBLISH = sa.text("update classifieds_offer set status = :on_air, published_at = now() where id = :id")


def chance(percent: int) -> bool:
    return random.random() * 100 < percent  # noqa: S311


def photo() -> dict[str, str]:
    return {"url": f"https://photos.example/{random.randrange(10**9)}.jpg"}  # noqa: S311


def video() -> str:
    name = GONE if chance(25) else "there"
    return f"https://videos.example/{name}/{random.randrange(10**6)}"  # noqa: S311


def published() -> datetime:
    """Now; or nearly 180 days ago, so that the time of some offers is soon over."""
    ago = EXPOSURE - timedelta(seconds=random.uniform(3, 20)) if chance(30) else timedelta(0)  # noqa: S311
    return datetime.now(UTC) - ago


def write_offer(session: Session, number: str) -> None:
    version = random.randint(1, CURRENT)  # noqa: S311
    session.add(
        Offer(
            id=f"o-{number}",
            seller=random.choice(SELLERS),  # noqa: S311
            category=random.choice(CATEGORIES[version]),  # noqa: S311
            catalogue=version,
            year=random.randint(2005, BUILT_LAST),  # noqa: S311
            mileage=random.randint(0, 200_000),  # noqa: S311
            price=random.randint(500, 40_000),  # noqa: S311
            status=ON_AIR,
            published_at=published(),
            photos=[photo() for _ in range(random.randint(0, 4))],  # noqa: S311
            video=video() if chance(40) else None,
        )
    )


def edit_offer(session: Session) -> None:
    offer = session.scalars(sa.select(Offer).order_by(sa.func.random()).limit(1).with_for_update()).first()
    match random.randrange(5):  # noqa: S311
        case _ if offer is None:
            return
        case 0:
            offer.price = offer.price * 95 // 100
        case 1:
            offer.mileage += 1000
        case 2:
            offer.photos = [*offer.photos[-5:], photo()]
        case 3:
            offer.video = video()
        case _:
            offer.status, offer.published_at = ON_AIR, published()


def by_sql(session: Session, batch: str) -> None:
    """Another program, in another language, which has never heard of stages."""
    match random.randrange(4):  # noqa: S311
        case 0:
            session.execute(IMPORT, {"batch": batch})
        case 1:
            session.execute(DISCOUNT, {"seller": random.choice(SELLERS)})  # noqa: S311
        case _:
            gone = session.scalar(sa.select(Offer.id).where(Offer.status == TAKEN_DOWN).limit(1))
            session.execute(REPUBLISH, {"id": gone, "on_air": ON_AIR})


def show(outside: Outside) -> None:
    with transaction() as session:
        here = sa.func.count().filter
        counts = sa.select(
            sa.func.count(),
            here(Offer.status == TAKEN_DOWN),
            here(Offer.catalogue == CURRENT),
            here(Offer.predicted_price.is_not(None)),
        )
        offers, down, evolved, priced = session.execute(counts).one()
    proof = prove(LOOKED_AT)
    words = "; ".join(proof.wrong) or f"of the {proof.offers} latest {proof.resting} are at rest, each as it should be"
    print(
        f"classifieds: {offers} offers, {down} taken down after 180 days, {evolved} in the new catalogue, {priced} "
        f"with a predicted price; {outside.photos} photos fetched, at most {outside.most_at_once} at once, "
        f"{outside.refused} calls refused; {words}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=None, help="stop after so many")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two steps")
    parser.add_argument("--stay", action="store_true", help="let the outside service run on until this is ended")
    options = parser.parse_args()
    create_tables()
    outside = Outside()
    server = outside.serve()
    run, steps, next_line = f"{time.time():.0f}", 0, 0.0
    while options.stay or options.steps is None or steps < options.steps:
        try:
            if options.steps is None or steps < options.steps:
                with transaction() as session:
                    write_offer(session, f"{run}-{steps}")
                    edit_offer(session)
                if chance(20):
                    with transaction() as session:
                        by_sql(session, f"{run}-{steps}")
                steps += 1
            if time.monotonic() >= next_line:
                next_line = time.monotonic() + LINE_SECONDS
                show(outside)
        except (TidemillError, SQLAlchemyError) as error:
            print(f"the users wait: {error}", flush=True)
        time.sleep(random.uniform(0.5, 1.5) * options.pause)  # noqa: S311
    show(outside)
    server.shutdown()


if __name__ == "__main__":
    main()
