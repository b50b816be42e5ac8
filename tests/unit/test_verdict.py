"""What a check says of itself: each sentence, and the data beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any as Anything

import pytest

from triggers.instants import END, FIRST, iso, shown, to_datetime
from triggers.trigger import All, Any, ChunkDelay, ChunkDelta, ChunkRefDelay, Delay, Delta, RefDelay, Trigger
from triggers.verdict import Values

P, Q = ("a", "p"), ("b", "q")
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
AGO = NOW - timedelta(days=1)
HOUR = timedelta(hours=1)


def at(text: str) -> str:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).isoformat()


@pytest.mark.parametrize(
    ("trigger", "current", "seen", "mark", "says"),
    [
        (Delta(*P, "2d"), {}, {}, "✗", "must grow by 2d: it has no value yet"),
        (
            *(Delta(*P, "2d"), {P: NOW}, {}, "✓"),
            "must grow by 2d: never seen before, so any value fires, now 2026-07-01 12:00:00Z",
        ),
        (
            *(Delta(*P, "2d"), {P: NOW}, {P: AGO}, "✗"),
            "must grow by 2d: last seen 2026-06-30 12:00:00Z, now 2026-07-01 12:00:00Z; "
            "1d is missing (at 2026-07-02 12:00:00Z)",
        ),
        (
            *(Delta(*P, "28h"), {P: NOW - timedelta(seconds=3661)}, {P: AGO}, "✗"),
            "must grow by 1d 4h: last seen 2026-06-30 12:00:00Z, now 2026-07-01 10:58:59Z; "
            "5h 1min are missing (at 2026-07-01 16:00:00Z)",
        ),
        (
            *(Delta(*P, "1d"), {P: NOW}, {P: AGO}, "✓"),
            "must grow by 1d: last seen 2026-06-30 12:00:00Z, now 2026-07-01 12:00:00Z; reached 2026-07-01 12:00:00Z",
        ),
        (
            *(Delta(*P, to_datetime(END) - AGO), {P: NOW}, {P: AGO}, "✗"),
            "must grow by 2911897d 12h: last seen 2026-06-30 12:00:00Z, now 2026-07-01 12:00:00Z; "
            "no date is late enough",
        ),
        (
            *(Delay(*P, "2h"), {P: NOW - HOUR}, {}, "✓"),
            "must be at most 2h behind now: it is at 2026-07-01 11:00:00Z, the time is 2026-07-01 12:00:00Z; "
            "lapses at 2026-07-01 13:00:00.000001Z",
        ),
        (
            *(Delay(*P, "2h"), {P: NOW - 5 * HOUR}, {P: AGO}, "✗"),
            "must be at most 2h behind now: it is at 2026-07-01 07:00:00Z, the time is 2026-07-01 12:00:00Z; "
            "3h is missing (at 2026-07-01 10:00:00Z)",
        ),
        (
            *(RefDelay(*P, *Q, "2h"), {P: NOW}, {}, "✗"),
            "must be at most 2h behind b.q: now 2026-07-01 12:00:00Z, but b.q has no value yet",
        ),
        (
            *(RefDelay(*P, *Q, "2h"), {P: AGO, Q: NOW}, {}, "✗"),
            "must be at most 2h behind b.q: it is at 2026-06-30 12:00:00Z, b.q at 2026-07-01 12:00:00Z; "
            "22h is missing (at 2026-07-01 10:00:00Z)",
        ),
        (
            *(RefDelay(*P, *Q, "1d"), {P: AGO, Q: NOW}, {}, "✓"),
            "must be at most 1d behind b.q: it is at 2026-06-30 12:00:00Z, b.q at 2026-07-01 12:00:00Z; "
            "reached 2026-06-30 12:00:00Z",
        ),
        (ChunkRefDelay(*P, *Q, "day"), {Q: NOW}, {}, "✗", "must have reached the day of b.q: it has no value yet"),
    ],
)
def test_a_sentence_says_the_rule_the_values_and_what_they_come_to(
    trigger: Trigger, current: Values, seen: Values, mark: str, says: str
) -> None:
    # T24
    verdict = trigger.check(NOW, current, seen)
    assert verdict.fired is (mark == "✓")
    assert verdict.explain() == f"{mark} a.p {says}"


@pytest.mark.parametrize(
    ("trigger", "current", "seen", "data"),
    [
        (Delta(*P, "2d"), {}, {}, {"missing": ["current", "last_seen"]}),
        (Delta(*P, "2d"), {P: NOW}, {}, {"missing": ["last_seen"], "distance_seconds": 0.0, "distance": "0s"}),
        (
            *(Delta(*P, timedelta(days=1, hours=12, minutes=1, seconds=1)), {P: AGO}, {P: AGO}),
            {"threshold": at("2026-07-02 00:01:01"), "distance_seconds": 129661.0, "distance": "1d 12h"},
        ),
        (RefDelay(*P, *Q, "2h"), {P: NOW}, {}, {"missing": ["reference"]}),
        (RefDelay(*P, *Q, "2h"), {Q: NOW}, {}, {"missing": ["current"], "threshold": at("2026-07-01 10:00")}),
        (
            *(ChunkDelta(*P, "day", 2), {P: NOW}, {P: AGO}),
            {"threshold": at("2026-07-02"), "distance_seconds": 43200.0, "distance": "12h"},
        ),
        (
            *(ChunkDelay(*P, "day", 1), {P: AGO}, {}),
            {
                "threshold": at("2026-06-30"),
                "expires_at": at("2026-07-02"),
                "distance_seconds": 0.0,
                "distance": "0s",
            },
        ),
        (
            *(ChunkDelay(*P, "day"), {P: AGO}, {}),
            {"threshold": at("2026-07-01"), "distance_seconds": 43200.0, "distance": "12h"},
        ),
        (
            *(ChunkRefDelay(*P, *Q, "day", 1), {P: AGO, Q: NOW}, {}),
            {"threshold": at("2026-06-30"), "distance_seconds": 0.0, "distance": "0s"},
        ),
    ],
)
def test_the_data_hold_what_the_sentence_says(
    trigger: Trigger, current: Values, seen: Values, data: dict[str, Anything]
) -> None:
    # T24
    tree = trigger.check(NOW, current, seen).tree
    nothing: dict[str, Anything] = {
        "threshold": None,
        "expires_at": None,
        "distance_seconds": None,
        "distance": None,
        "missing": [],
    }
    assert {name: tree[name] for name in nothing} == {**nothing, **data}
    assert (tree["entity"], tree["parameter"]) == P
    assert (tree["ref_entity"], tree["ref_parameter"]) == (Q if "b.q" in tree["sentence"] else (None, None))


@pytest.mark.parametrize(
    ("trigger", "q", "says"),
    [
        (All(Delta(*P, "2d"), Delay(*Q, "1h")), AGO, "✗ all of 2 must hold: none does"),
        (All(Delta(*P, "1d"), Delay(*Q, "1h")), AGO, "✗ all of 2 must hold: 1 does"),
        (All(Delta(*P, "1d"), Delay(*Q, "1h")), NOW, "✓ all of 2 must hold: 2 do"),
        (Any(Delta(*P, "2d"), Delay(*Q, "1h")), NOW, "✓ at least one of 2 must hold: 1 does"),
    ],
)
def test_the_first_line_of_several_conditions_counts_them(trigger: Trigger, q: datetime, says: str) -> None:
    first, *others = trigger.check(NOW, {P: NOW, Q: q}, {P: AGO}).explain().splitlines()
    assert first == says
    assert [line[:7] in ("  ✓ a.p", "  ✗ a.p", "  ✓ b.q", "  ✗ b.q") for line in others] == [True, True]


def test_moments_before_and_after_all_dates_are_said_in_words() -> None:
    assert [shown(each) for each in (FIRST - 1, FIRST, END - 1, END)] == [
        "the beginning of time",
        "0002-01-01 00:00:00Z",
        "9998-12-31 23:59:59.999999Z",
        "the end of time",
    ]
    assert [iso(each) for each in (None, FIRST - 1, FIRST, END - 1, END)] == [
        *(None, None, "0002-01-01T00:00:00+00:00", "9998-12-31T23:59:59.999999+00:00", None)
    ]
