"""Pictures of triggers on a time line, drawn from what `check` says; the documentation shows exactly these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from triggers.dsl import caught_up, fresh, grown, new_day, new_month, reached, same_chunk
from triggers.trigger import All, Any, ChunkDelta, Trigger

ORDERS, MART = ("dds.orders", "loaded_to"), ("mart.orders", "built_to")
COLUMNS = 64
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@dataclass(frozen=True)
class Picture:
    """One thing moves along the line (`current`, `now` or `reference`), the others stand where they are marked."""

    said: str
    trigger: Trigger
    moving: str
    begin: datetime
    column: timedelta
    tick: timedelta
    current: datetime | None = None
    reference: datetime | None = None
    seen: datetime | None = None
    now: datetime = field(default=at("2021-04-27 00:00"))

    def draw(self) -> str:
        moments = [self.begin + self.column * index for index in range(COLUMNS)]
        rows = [("", self._labels(moments)), ("", "".join("|" if self._ticks(each) else "-" for each in moments))]
        standing = {"last seen": self.seen, "current": self.current, "reference": self.reference}
        rows += [(f"{what} {moment:%H:%M:%S}", self._mark(moment)) for what, moment in standing.items() if moment]
        rows.append((f"{self.moving} here", "".join("#" if self._fires(each) else "." for each in moments)))
        return "\n".join([self.said, *(f"{head:<20}{line}".rstrip() for head, line in rows)])

    def _ticks(self, moment: datetime) -> bool:
        return (moment - self.begin) % self.tick == timedelta(0)

    def _labels(self, moments: Iterable[datetime]) -> str:
        line = [" "] * (COLUMNS + 6)
        for index, moment in enumerate(moments):
            if self._ticks(moment):
                text = f"{moment:%d.%m.}" if self.tick >= timedelta(days=1) else f"{moment:%H:%M}"
                line[index : index + len(text)] = text
        return "".join(line)

    def _mark(self, moment: datetime) -> str:
        return " " * ((moment - self.begin) // self.column) + "^"

    def _fires(self, moment: datetime) -> bool:
        values: dict[str, datetime | None] = {"current": self.current, "reference": self.reference, "now": self.now}
        values[self.moving] = moment
        now = values["now"]
        assert now is not None
        current = {pair: each for pair, each in ((ORDERS, values["current"]), (MART, values["reference"])) if each}
        return self.trigger.check(now, current, {ORDERS: self.seen} if self.seen else {}).fired


SEEN = at("2021-04-23 03:51:16")


def _days(said: str, trigger: Trigger, *, seen: datetime | None = None, reference: datetime | None = None) -> Picture:
    """Current moves over four days of April."""
    begin = at("2021-04-23 00:00")
    return Picture(said, trigger, "current", begin, 1.5 * HOUR, DAY, seen=seen, reference=reference)


PICTURES = [
    _days('grown("dds.orders", "loaded_to", by="2d")', grown(*ORDERS, by="2d"), seen=SEEN),
    _days('ChunkDelta("dds.orders", "loaded_to", "day", 2)', ChunkDelta(*ORDERS, "day", 2), seen=SEEN),
    _days('new_day("dds.orders", "loaded_to")', new_day(*ORDERS), seen=SEEN),
    _days('new_day("dds.orders", "loaded_to", tz="Asia/Tokyo")', new_day(*ORDERS, tz="Asia/Tokyo"), seen=SEEN),
    Picture(
        'new_month("dds.orders", "loaded_to")',
        new_month(*ORDERS),
        "current",
        at("2021-04-20 00:00"),
        6 * HOUR,
        4 * DAY,
        seen=at("2021-04-22 12:00"),
    ),
    Picture(
        'fresh("dds.orders", "loaded_to", within="2h")',
        fresh(*ORDERS, within="2h"),
        "now",
        at("2021-04-25 00:00"),
        timedelta(minutes=5),
        HOUR,
        current=at("2021-04-25 01:20"),
    ),
    Picture(
        'reached("dds.orders", "loaded_to", "day")',
        reached(*ORDERS, "day"),
        "now",
        at("2021-04-23 00:00"),
        1.5 * HOUR,
        DAY,
        current=at("2021-04-24 15:00"),
    ),
    _days(
        'caught_up("dds.orders", "loaded_to", with_=("mart.orders", "built_to"), within="6h")',
        caught_up(*ORDERS, with_=MART, within="6h"),
        reference=at("2021-04-25 09:00"),
    ),
    _days(
        'same_chunk("dds.orders", "loaded_to", "day", with_=("mart.orders", "built_to"))',
        same_chunk(*ORDERS, "day", with_=MART),
        reference=at("2021-04-25 09:00"),
    ),
    _days(
        "All(new_day(*orders), caught_up(*orders, with_=mart))",
        All(new_day(*ORDERS), caught_up(*ORDERS, with_=MART)),
        seen=SEEN,
        reference=at("2021-04-25 09:00"),
    ),
    _days(
        'Any(grown(*orders, by="2d"), caught_up(*orders, with_=mart))',
        Any(grown(*ORDERS, by="2d"), caught_up(*ORDERS, with_=MART)),
        seen=SEEN,
        reference=at("2021-04-24 12:00"),
    ),
]
