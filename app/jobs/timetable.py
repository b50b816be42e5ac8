"""When a timetable fires: pure, time is an argument."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from app.errors import BadRequest

#: Of intervals. What is longer never comes, and a hundred of them lie beyond the last year that there is.
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=36_525)


class CatchUp(enum.StrEnum):
    """What happens to slots that passed while nobody looked."""

    LAST = "last"  # the latest of them fires, once
    ALL = "all"  # each of them fires
    NONE = "none"  # none fires that is older than a minute


LATE = timedelta(minutes=1)
#: A line is one or is none, whatever the time.
_SOME_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Timetable:
    """A cron line, on the wall clock of `tz`, or an interval. A time that the change to summer time leaves out fires
    when it would have been, a time that comes twice fires once, as Debian's cron does it."""

    tz: str = "UTC"
    cron: str | None = None
    every: timedelta | None = None

    def __post_init__(self) -> None:
        if (self.cron is None) == (self.every is None):
            raise BadRequest("a periodic job has either cron= or every=")
        try:
            ZoneInfo(self.tz)
        except (KeyError, ValueError, OSError, TypeError):
            raise BadRequest(f"tz={self.tz!r} is not a time zone: write one such as 'Europe/Moscow'") from None
        if self.every is not None and self.every < SHORTEST:
            raise BadRequest(f"every={self.every} is shorter than {SHORTEST.total_seconds():g} s")
        if self.every is not None and self.every > LONGEST:
            raise BadRequest(f"every={self.every} is longer than 100 years")
        if self.cron is not None:
            try:
                CronSim(self.cron, _SOME_MOMENT)
            except CronSimError as error:
                raise BadRequest(f"cron={self.cron!r} is not a cron line: {error}") from None

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The slots later than `moment`, in UTC."""
        if self.every is not None:
            while True:
                moment += self.every
                yield moment.astimezone(UTC)
        assert self.cron is not None  # noqa: S101 - said by __post_init__
        for slot in CronSim(self.cron, moment.astimezone(ZoneInfo(self.tz))):
            yield slot.astimezone(UTC)

    def first(self, now: datetime) -> datetime:
        """An interval begins at once, a cron line with its next slot."""
        return now if self.every is not None else self._next(now)

    def _next(self, moment: datetime) -> datetime:
        for slot in self.after(moment):
            return slot
        raise BadRequest(f"cron={self.cron!r} never fires")


def due(
    table: Timetable, next_at: datetime, now: datetime, policy: CatchUp, most: int
) -> tuple[list[datetime], datetime]:
    """The slots that fire now, oldest first, and the one that is next."""
    if policy is CatchUp.ALL:
        slots = [next_at]
        for slot in table.after(next_at):
            if slot > now or len(slots) == most:
                return slots, slot
            slots.append(slot)
    last = _last_not_after(table, next_at, now)
    following = next(table.after(last), None)
    if following is None:
        raise BadRequest(f"cron={table.cron!r} never fires again")
    if policy is CatchUp.NONE and now - last > LATE:
        return [], following
    return [last], following


def _last_not_after(table: Timetable, slot: datetime, now: datetime) -> datetime:
    """Without walking over a year of missed minutes."""
    if table.every is not None:
        return slot + ((now - slot) // table.every) * table.every
    assert table.cron is not None  # noqa: S101 - a timetable has one or the other
    # Backwards from the next whole second: the first found is the last that was due.
    begin = now.replace(microsecond=0) + timedelta(seconds=1)
    for earlier in CronSim(table.cron, begin.astimezone(ZoneInfo(table.tz)), reverse=True):
        return max(slot, earlier.astimezone(UTC))
    return slot
