"""What went on with a task over time: the steps of its parameters, its runs, when its trigger held, what was missed.

What it promises: each kind is read by index, the newest first, and no more than can be drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from triggers import listing, missed
from triggers.ctl import Parameter
from triggers.listing import PastRun
from triggers.missed import Missed
from triggers.model import Ctl, CtlChange, CtlSeen, Evaluation

STEPS_MOST, RUNS_MOST, EVALUATIONS_MOST, MISSED_MOST = 300, 120, 240, 60
#: More parameters than these are not drawn.
TRACKS_MOST = 6
LENGTHS = {
    "15min": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
    "1w": timedelta(weeks=1),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
    "1y": timedelta(days=365),
}
#: Without a length that is asked for, so many of the last runs and steps are to be seen.
RUNS_SEEN, STEPS_SEEN = 8, 12


@dataclass(frozen=True)
class Step:
    at: datetime
    value: datetime
    restated: bool


@dataclass(frozen=True)
class Track:
    """A parameter: its steps, the oldest first. `before`: its value when they begin."""

    name: Parameter
    steps: tuple[Step, ...]
    before: datetime | None
    current: datetime | None
    seen: datetime | None

    def at(self, moment: datetime) -> datetime | None:
        found = self.before
        for step in self.steps:
            if step.at > moment:
                break
            found = step.value
        return found


@dataclass(frozen=True)
class Evaluated:
    """An evaluation that was stored: the outcome had changed, or a worker had checked it."""

    id: int
    at: datetime
    fired: bool
    cause: str
    run_id: int | None


@dataclass(frozen=True)
class History:
    """From `begin` to `end`, which is now; each kind, the oldest first."""

    length: str
    begin: datetime
    end: datetime
    tracks: tuple[Track, ...]
    runs: tuple[PastRun, ...]
    evaluations: tuple[Evaluated, ...]
    missed: tuple[Missed, ...]
    #: Parameters that are left out.
    others: tuple[Parameter, ...] = ()


def of_task(
    session: Session, task: str, parameters: Sequence[Parameter], now: datetime, length: str | None = None
) -> History:
    drawn, others = tuple(parameters[:TRACKS_MOST]), tuple(parameters[TRACKS_MOST:])
    tracks = _tracks(session, drawn, task)
    runs = listing.runs(session, task, limit=RUNS_MOST)
    if length is None:
        length = fitting(now, _earliest(runs, tracks))
    end = rounded(now, LENGTHS[length])
    begin = end - LENGTHS[length]
    known = evaluations(session, task, limit=EVALUATIONS_MOST)
    windows = missed.listed(session, task=task, limit=MISSED_MOST)
    return History(
        length,
        begin,
        end,
        tuple(_within(track, begin) for track in tracks),
        tuple(reversed([run for run in runs if run.ended_at is None or run.ended_at >= begin])),
        tuple(reversed(_from(known, begin))),
        tuple(reversed([each for each in windows if each.closed_at >= begin])),
        others,
    )


def of_parameters(
    session: Session, parameters: Sequence[Parameter], now: datetime, length: str | None = None
) -> History:
    """Without a task: only their steps."""
    drawn, others = tuple(parameters[:TRACKS_MOST]), tuple(parameters[TRACKS_MOST:])
    tracks = _tracks(session, drawn, None)
    length = length or fitting(now, _earliest((), tracks))
    end = rounded(now, LENGTHS[length])
    begin = end - LENGTHS[length]
    return History(length, begin, end, tuple(_within(track, begin) for track in tracks), (), (), (), others)


def evaluations(session: Session, task: str, *, limit: int = 20) -> list[Evaluated]:
    """The newest first."""
    e = Evaluation
    query = sa.select(e.id, e.at, e.fired, e.cause, e.run_id).where(e.task == task)
    rows = session.execute(query.order_by(e.at.desc()).limit(limit))
    return [Evaluated(*row) for row in rows]


def _from(known: Iterable[Evaluated], begin: datetime) -> list[Evaluated]:
    """Those from then on, and the one whose outcome held at that moment."""
    found = []
    for each in known:
        found.append(each)
        if each.at < begin:
            break
    return found


def _tracks(session: Session, names: Sequence[Parameter], task: str | None) -> list[Track]:
    if not names:
        return []
    bound: dict[str, Any] = {
        "task": task,
        "entities": [each for each, _ in names],
        "words": [each for _, each in names],
    }
    heads = {(row.entity, row.parameter): row for row in session.execute(_HEADS, bound)}
    steps: dict[Parameter, list[Any]] = {name: [] for name in names}
    for row in session.execute(_STEPS, bound):
        steps[(row.entity, row.parameter)].append(row)
    return [_track(name, sorted(steps[name], key=lambda row: row.id), heads[name]) for name in names]


def _track(name: Parameter, rows: Sequence[Any], head: Any) -> Track:
    before = rows[0].previous if rows else head.current
    steps = tuple(Step(row.changed_at, row.value, row.restated) for row in rows)
    return Track(name, steps, before, head.current, head.seen)


def _within(track: Track, begin: datetime) -> Track:
    steps = tuple(each for each in track.steps if each.at >= begin)
    before = track.at(begin) if len(steps) < len(track.steps) else track.before
    return Track(track.name, steps, before, track.current, track.seen)


def _earliest(runs: Sequence[PastRun], tracks: Sequence[Track]) -> datetime | None:
    moments = [run.created_at for run in runs[:RUNS_SEEN]]
    moments += [step.at for track in tracks for step in track.steps[-STEPS_SEEN:]]
    return min(moments, default=None)


def fitting(now: datetime, earliest: datetime | None) -> str:
    """The shortest length that reaches back so far."""
    if earliest is None:
        return "1d"
    for word, length in LENGTHS.items():
        if earliest >= now - length:
            return word
    return list(LENGTHS)[-1]


def rounded(now: datetime, length: timedelta) -> datetime:
    """A little later than now, and the same for a while, so that a picture does not change all the time."""
    step = length / 90
    begin = datetime.min.replace(tzinfo=now.tzinfo)
    return begin + ((now - begin) // step + 1) * step


def _given() -> Any:
    return (
        sa.func.unnest(sa.bindparam("entities", type_=Array(sa.Text)), sa.bindparam("words", type_=Array(sa.Text)))
        .table_valued(sa.column("entity", sa.Text), sa.column("parameter", sa.Text))
        .render_derived(name="given")
    )


def _heads() -> Any:
    given = _given()
    here = sa.and_(Ctl.entity == given.c.entity, Ctl.parameter == given.c.parameter)
    seen = sa.and_(
        CtlSeen.task == sa.bindparam("task", type_=sa.Text),
        CtlSeen.entity == given.c.entity,
        CtlSeen.parameter == given.c.parameter,
    )
    words = (given.c.entity, given.c.parameter, Ctl.value.label("current"), CtlSeen.value.label("seen"))
    return sa.select(*words).select_from(given.outerjoin(Ctl, here).outerjoin(CtlSeen, seen))


def _steps() -> Any:
    given, c = _given(), CtlChange
    last = (
        sa.select(c.id, c.changed_at, c.value, c.previous, c.restated)
        .where(c.entity == given.c.entity, c.parameter == given.c.parameter)
        .order_by(c.id.desc())
        .limit(STEPS_MOST)
        .lateral("last")
    )
    return sa.select(given.c.entity, given.c.parameter, *last.c).select_from(given.join(last, sa.true()))


_HEADS, _STEPS = _heads(), _steps()
