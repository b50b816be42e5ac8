"""How good an offer is, from 0 to 100, and what that rests on. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

ON_AIR = "on air"
WEEK = timedelta(weeks=1)
PHOTOS_MOST, WEEKS_MOST = 4, 20
#: The columns that it looks at.
READS = ("status", "published_at", "photos", "price", "predicted_price")


@dataclass(frozen=True)
class Rated:
    """What a score was made from: the state of the stage."""

    photos: int
    fair: bool
    weeks: int

    @classmethod
    def of(cls, offer: dict[str, Any], now: datetime) -> Self | None:
        """Of a row as Postgres writes it; None: it is not on air, and has no score."""
        if offer["status"] != ON_AIR:
            return None
        published = _published(offer)
        weeks = 0 if published is None else max(0, (now - published) // WEEK)
        predicted = offer["predicted_price"]
        return cls(
            photos=min(PHOTOS_MOST, sum("stored" in each for each in offer["photos"])),
            fair=predicted is not None and offer["price"] <= predicted,
            weeks=min(WEEKS_MOST, weeks),
        )

    @property
    def quality(self) -> int:
        return 40 + 10 * self.photos + 20 * self.fair - 2 * self.weeks

    def until(self, offer: dict[str, Any]) -> datetime | None:
        """When it is less, if nobody changes the offer."""
        published = _published(offer)
        return None if published is None or self.weeks >= WEEKS_MOST else published + (self.weeks + 1) * WEEK


def _published(offer: dict[str, Any]) -> datetime | None:
    at = offer["published_at"]
    return None if at is None else datetime.fromisoformat(at)
