"""An axis of time: where a moment lies on it, and which moments are written beside it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_STEPS = (
    *(timedelta(seconds=each) for each in (1, 2, 5, 10, 15, 30)),
    *(timedelta(minutes=each) for each in (1, 2, 5, 10, 15, 30)),
    *(timedelta(hours=each) for each in (1, 2, 3, 6, 12)),
    *(timedelta(days=each) for each in (1, 2, 7, 14, 30, 61, 91, 182, 365, 730, 1826, 3652)),
)
_EPOCH = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday


@dataclass(frozen=True)
class Axis:
    """`first` and `last` are places of the picture; `last` may be the smaller one, for what grows upwards."""

    begin: datetime
    end: datetime
    first: float
    last: float

    def place(self, moment: datetime) -> float:
        """Never outside of the axis."""
        part = (moment - self.begin) / (self.end - self.begin)
        return round(self.first + (self.last - self.first) * min(1.0, max(0.0, part)), 1)

    def holds(self, moment: datetime) -> bool:
        return self.begin <= moment <= self.end

    def ticks(self, most: int) -> list[datetime]:
        """Round moments."""
        length = self.end - self.begin
        step = next((each for each in _STEPS if length / each <= most), None)
        if step is None:
            step = _STEPS[-1] * (int(length / _STEPS[-1] / most) + 1)
        first, last = -((_EPOCH - self.begin) // step), (self.end - _EPOCH) // step
        return [_EPOCH + number * step for number in range(first, last + 1)]

    def word(self, moment: datetime) -> str:
        """As short as the length of the axis lets it be."""
        return word(moment, self.end - self.begin)


def word(moment: datetime, length: timedelta) -> str:
    """
    >>> word(datetime(2026, 7, 1, 12, 30, tzinfo=UTC), timedelta(hours=3)), word(_EPOCH, timedelta(days=3000))
    ('12:30', '1970-01-05')
    """
    moment = moment.astimezone(UTC)
    if length <= timedelta(minutes=5):
        return f"{moment:%H:%M:%S}"
    if length <= timedelta(hours=30):
        return f"{moment:%H:%M}" if (moment.hour, moment.minute) != (0, 0) else f"{moment:%b} {moment.day}"
    if length <= timedelta(days=8):
        return f"{moment:%b} {moment.day} {moment:%H:%M}" if moment.hour or moment.minute else _day(moment)
    return _day(moment) if length <= timedelta(days=300) else f"{moment:%Y-%m-%d}"


def _day(moment: datetime) -> str:
    return f"{moment:%b} {moment.day}"


def exact(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
