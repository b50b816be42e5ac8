"""How `tidemill reactive why` speaks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from app.cli.reactive_arguments import At, named
from app.cli.reactive_words import run, shown
from triggers.aggregates import All
from triggers.listing import STATES as LISTED
from triggers.trigger import Delta
from triggers.why import STATES, Why

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
NAME = ("dds.orders", "loaded_to")
TOLD: dict[str, Any] = {
    "id": 17,
    "state": "done",
    "kind": "regular",
    "requested_by": None,
    "window_from": None,
    "window_to": None,
    "created_at": NOW - timedelta(hours=2),
    "started_at": NOW - timedelta(hours=1),
    "ended_at": NOW - timedelta(minutes=58),
    "attempts": 1,
    "error": None,
}


def told(**more: Any) -> str:
    return click.unstyle(run(TOLD | more, NOW))


def test_a_run_in_words() -> None:
    assert run({}) == "none"
    assert told() == "17 is done, started 2026-07-01 11:00:00 (1h ago), took 2min"
    assert told(started_at=None, ended_at=None, state="waiting") == "17 is waiting, made 2026-07-01 10:00:00 (2h ago)"
    words = told(kind="manual", requested_by="ann@host", window_from=NOW, window_to=NOW, attempts=3, error="a\nb")
    assert "by hand (ann@host), from 2026-07-01 12:00:00Z to 2026-07-01 12:00:00Z, started" in words
    assert words.endswith("3 tries, a")
    assert len(told(error="x" * 5000)) < 400


def test_the_tree_the_state_the_holds_and_the_run() -> None:
    trigger = All(Delta(*NAME, "1d"), Delta("a", "b", "1d"))
    verdict = trigger.check(NOW, {NAME: NOW}, {NAME: NOW - timedelta(days=2)})
    found = Why("shop.mart", NOW, verdict.fired, "idle", verdict.tree, ("one", "two"), TOLD)
    lines = [click.unstyle(line) for line in shown(found, NOW)]
    assert lines[:2] == ["shop.mart", "✗ all of 2 must hold: 1 does"]
    assert lines[2].startswith(
        "  ✓ dds.orders.loaded_to must grow by 1d: last seen 2026-06-29 12:00:00Z, now 2026-07-01"
    )
    assert lines[3].startswith("  ✗ a.b must grow by 1d: it has no value yet")
    assert lines[4:8] == ["", "state     idle: its trigger does not hold", "held by   one", "          two"]
    assert lines[8].startswith("last run  17 is done")


def test_a_past_evaluation_says_when_and_by_whom() -> None:
    verdict = Delta(*NAME, "1d").check(NOW, {}, {})
    lines = [click.unstyle(line) for line in shown(Why("t", NOW, False, "idle", verdict.tree, (), {}, "claim"), NOW)]
    assert lines[3] == "evaluated 2026-07-01 12:00:00 (0s ago) by claim"
    assert lines[-1] == "run       none"


def test_every_state_has_words() -> None:
    assert {*LISTED, "ready", "fired"} == set(STATES)


@pytest.mark.parametrize("text", ["in 2h", "soon", "2026-07-01", "", "9999999w", "0001-06-01T00:00:00Z"])
def test_what_is_no_past(text: str) -> None:
    with pytest.raises(click.BadParameter):
        At().convert(text, None, None)


def test_a_moment_is_named_as_it_may_be_written_again() -> None:
    words = named(NOW.astimezone())
    assert words == "2026-07-01T12:00:00Z"
    assert At().convert(words, None, None) == NOW
    assert abs(At().convert("now", None, None) - datetime.now(UTC)) < timedelta(minutes=1)
