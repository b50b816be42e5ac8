"""When a timetable fires: pure, time is an argument."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
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
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
#: A line is one or is none, whatever the time.
_SOME_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Timetable:
    """A cron line, on the wall clock of `tz`, or an interval. Of a line that names its hours and minutes, a time that a
    change of the clock leaves out fires when the clock goes on, and a time that comes twice fires once; a line with `*`
    fires whenever the clock shows such a time; as Debian's cron does it."""

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
            if not isinstance(self.cron, str):
                raise BadRequest(f"cron={self.cron!r} is not a cron line: write text such as '0 3 * * *'")
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
        zone = ZoneInfo(self.tz)
        named = CronSim(self.cron, moment.astimezone(zone))
        if named.fixup_tz is None:
            yield from _shown(self.cron, zone, moment)
            return
        for slot in named:
            # In the hour that comes twice, it begins by what the clock shows: with times of the first of the two.
            if (found := slot.astimezone(UTC)) > moment:
                yield found

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
    # Backwards from the next whole second. What is found there, by a clock that may have been changed since, is only
    # where to begin: the last that was due is found forwards.
    begin = now.replace(microsecond=0) + _SECOND
    for earlier in CronSim(table.cron, begin.astimezone(ZoneInfo(table.tz)), reverse=True):
        since = max(slot, earlier.astimezone(UTC) - _SECOND)
        last = max(takewhile(lambda found: found <= now, table.after(since)), default=slot)
        if last > slot or since == slot:
            return last
    return slot


def _shown(cron: str, zone: ZoneInfo, moment: datetime) -> Iterator[datetime]:
    """The moments after this one at which the clock shows such a time, however it is changed: from one change to the
    next it is that of a fixed offset."""
    begin = since = moment.astimezone(UTC)
    while True:
        offset = _offset(zone, since)
        for shown in CronSim(cron, (begin + offset).replace(tzinfo=None)):
            slot = (shown - offset).replace(tzinfo=UTC)
            if (change := _change(zone, since, slot)) is not None:
                break
            yield slot
            since = slot
        else:
            return
        begin, since = change - _SECOND, change


def _change(zone: ZoneInfo, since: datetime, until: datetime) -> datetime | None:
    """The first second after `since` at which the offset is another one."""
    offset, early = _offset(zone, since), since
    while early < until:
        late = min(early + _DAY, until)
        if _offset(zone, late) != offset:
            while late - early > _SECOND:
                middle = early + (late - early) / 2
                early, late = (middle, late) if _offset(zone, middle) == offset else (early, middle)
            return late.replace(microsecond=0)
        early = late
    return None


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)
