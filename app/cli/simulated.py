"""What `tidemill simulate` found, as tables and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from app.cli.output import heading, span, table
from triggers.instants import SECOND, Instant, iso, shown, to_instant
from triggers.simulation import Difference, Launch, Missed, Outcome
from triggers.verdict import Parameter, dotted


@dataclass(frozen=True)
class Found:
    since: datetime
    until: datetime
    changes: int
    runs: Counter[str]
    before: Outcome
    after: Outcome | None
    difference: Difference | None
    #: Those that are told of.
    names: tuple[str, ...]

    @property
    def last(self) -> Outcome:
        return self.before if self.after is None else self.after


def _of(outcome: Outcome, name: str) -> list[Launch]:
    return [each for each in outcome.launches if each.task == name]


def show(found: Found, limit: int) -> None:
    begin, end = (shown(to_instant(each)) for each in (found.since, found.until))
    click.echo(f"simulated {found.changes} changes from {begin} to {end}")
    missed = Counter(each.task for each in found.last.missed)
    figures = (found.runs, found.before.counts, found.last.counts, missed)
    names = [name for name in found.names if any(each[name] for each in figures)]
    by_task: dict[str, list[Launch]] = {name: [] for name in names}
    for launch in found.last.launches:
        if launch.task in by_task:
            by_task[launch.task].append(launch)
    head = ["task", "really ran", "launches", "waited at most", "missed windows"]
    rows: list[list[object]] = []
    for name in names:
        longest = max((each.waited for each in by_task[name]), default=0)
        rows.append([name, found.runs[name], found.before.counts[name], _span(longest), missed[name]])
        if found.after is not None:
            rows[-1].insert(3, found.after.counts[name])
    if found.after is not None:
        head[2:3] = ["as registered", "as tried"]
    table(head, rows, empty="no task would have started")
    if found.difference is not None:
        _show_difference(found.difference, limit)
    elif len(found.names) == 1:
        _list("launches", _of(found.before, found.names[0]), limit)


def _show_difference(difference: Difference, limit: int) -> None:
    added, gone = difference.added, difference.gone
    click.echo(f"\n{len(added)} added, {len(gone)} gone, {difference.same} the same")
    _list("added", added, limit)
    _list("gone", gone, limit)


def _list(title: str, launches: Sequence[Launch], limit: int) -> None:
    if not launches or not limit:
        return
    heading(title)
    rows = [(each.task, shown(each.fired_at), _span(each.waited), _window(each)) for each in launches[:limit]]
    table(("task", "fired", "waited", "window"), rows)
    if len(launches) > limit:
        click.echo(f"({limit} of {len(launches)} are shown; --limit shows more)", err=True)


def _span(microseconds: int) -> str:
    return span(timedelta(microseconds=microseconds))


def _window(launch: Launch) -> str:
    return ", ".join(
        f"{dotted(name)} {'-' if seen is None else shown(seen)} → {'-' if current is None else shown(current)}"
        for name, seen, current in launch.window
    )


def as_data(found: Found) -> dict[str, Any]:
    told = set(found.names)
    data: dict[str, Any] = {
        "since": found.since,
        "until": found.until,
        "changes": found.changes,
        "tasks": [
            {
                "task": name,
                "really_ran": found.runs[name],
                "launches": found.before.counts[name],
                "tried": None if found.after is None else found.after.counts[name],
            }
            for name in found.names
        ],
        "pools": {
            name: {
                "launches": pool.launches,
                "peak_waiting": pool.peak_waiting,
                "peak_running": pool.peak_running,
                "waited_seconds": pool.waited / SECOND,
                "longest_wait_seconds": pool.longest_wait / SECOND,
            }
            for name, pool in found.last.pools.items()
        },
        "launches": [_launch(each) for each in found.last.launches if each.task in told],
        "missed": [_missed(each) for each in found.last.missed if each.task in told],
        "digest": found.last.digest,
    }
    if found.difference is not None:
        data["added"] = [_launch(each) for each in found.difference.added]
        data["gone"] = [_launch(each) for each in found.difference.gone]
        data["same"] = found.difference.same
    return data


def _launch(launch: Launch) -> dict[str, Any]:
    def side(name: Parameter, seen: Instant | None, current: Instant | None) -> dict[str, Any]:
        return {"entity": name[0], "parameter": name[1], "last_seen": iso(seen), "current": iso(current)}

    moments = {"fired_at": launch.fired_at, "started_at": launch.started_at, "ended_at": launch.ended_at}
    return {
        "task": launch.task,
        "pool": launch.pool,
        **{word: iso(moment) for word, moment in moments.items()},
        "outcome": launch.outcome,
        "window": [side(*each) for each in launch.window],
    }


def _missed(missed: Missed) -> dict[str, Any]:
    return {
        "task": missed.task,
        "opened_at": iso(missed.opened_at),
        "closed_at": iso(missed.closed_at),
        "why": missed.why,
    }
