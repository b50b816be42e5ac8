"""How values are shown on pages: moments, spans, numbers, states, JSON."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup, escape

from app.words import counted, span
from processes.wording import clean

TONES = {
    "ok": ("FINISHED", "FINISH", "DONE", "VALID", "APPLIED"),
    "busy": ("ACTIVE", "WORK", "RUNNING"),
    "wait": ("REGISTERED", "QUEUED", "READY", "PENDING", "WAITING", "FOLLOWS", "LATER"),
    "warn": (
        *("PAUSED", "SKIPPED", "ABORTED", "RETRIED", "LOST", "INTERRUPTED", "CANCELLED", "EXPIRED", "BLOCKED"),
        *("WARN", "RESTS"),
    ),
    "bad": ("BROKEN", "FAILED", "PARKED", "QUARANTINED", "REVOKED", "FAIL", "GONE"),
}
_TONE = {state: tone for tone, states in TONES.items() for state in states}
LONG = 20_000


def tone(state: object) -> str:
    """Which of the five looks a state has."""
    return _TONE.get(str(state).upper(), "wait")


def ago(moment: datetime | None, now: datetime | None = None) -> Markup:
    """With the exact time as its title. The text of it is written anew by the browser every second."""
    if moment is None:
        return NOTHING
    exact = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(timespec="milliseconds"), f"{exact:%Y-%m-%d %H:%M:%S} UTC", distance(moment, now)
    )


def distance(moment: datetime, now: datetime | None = None) -> str:
    """As the script of the pages says it.

    >>> distance(datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 7, 1, 12, 1, 30, tzinfo=UTC))
    '1min 30s ago'
    """
    seconds = int(((now or datetime.now(UTC)) - moment).total_seconds())
    if seconds == 0:
        return "now"
    words = span(timedelta(seconds=abs(seconds)))
    return f"in {words}" if seconds < 0 else f"{words} ago"


def since(age: timedelta | None, now: datetime | None = None) -> Markup:
    """For how long, as a moment, so that it goes on by itself."""
    return NOTHING if age is None else ago((now or datetime.now(UTC)) - age)


def number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def bounded(value: int | None) -> str:
    """Of very many, no more are counted than that."""
    return number(value) + ("+" if value is not None and isinstance(counted(value), str) else "")


def duration(value: timedelta | None) -> str:
    if value is None:
        return "–"
    return f"{value / timedelta(milliseconds=1):.0f}ms" if abs(value) < timedelta(seconds=0.1) else span(value)


def cut(value: object, most: int = 200) -> str:
    """On one line, without what a terminal or a page might obey."""
    return "–" if value is None else clean(str(value), most)


def plain_json(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return text if len(text) <= LONG else f"{text[:LONG]}…"


def lines(text: str | None) -> Markup:
    """With the lines that it has, each escaped."""
    return Markup("\n").join(escape(line) for line in (text or "")[:LONG].splitlines())


NOTHING = Markup('<span class="nothing">–</span>')
FILTERS = {
    "ago": ago,
    "since": since,
    "span": duration,
    "number": number,
    "bounded": bounded,
    "cut": cut,
    "quoted": shlex.quote,
    "json": plain_json,
    "lines": lines,
    "tone": tone,
}
