"""Three sessions in every order of their statements, and pairs that have more than some hundred. Other pairs:
`tests/integration/test_interleavings.py`.

Of orders that differ only in what commutes, one is played (`tests.kit.commuting`)."""

from __future__ import annotations

import pytest

from tests.kit.interleaved import world
from tests.kit.interleavings import Interleavings

pytestmark = pytest.mark.chaos
CASES = [
    ("visit", "late", "finish", "time out"),
    ("process", "late", "accept present", "time out"),
    ("process", "late", "time out 1", "time out 2"),
    ("process", "twice", "accept late", "time out"),
    ("job", "waits", "claim 1", "claim 2", "offer"),
    ("job", "waits", "claim", "offer 1", "offer 2"),
    ("job", "late", "finish", "time out", "claim"),
    ("job", "late", "finish", "time out", "offer"),
    ("job", "late", "finish", "offer", "claim"),
    ("job", "late", "finish", "offer 1", "offer 2"),
    ("job", "late", "finish", "time out 1", "time out 2"),
    ("visit", "waits", "claim", "other", "offer"),
    ("visit", "late", "finish", "offer", "claim"),
    *(("visit", "late", "finish", "other", other) for other in ("offer", "claim")),
    *(("visit", "late", one, "offer", "claim") for one in ("leave", "fail")),
    *(("visit", "late", one, "other", two) for one in ("leave", "fail") for two in ("offer", "claim")),
    *(("visit", "late", one, "time out", two) for one in ("leave", "fail") for two in ("offer", "claim")),
    ("visit", "late", "time out", "other", "claim"),
    ("visit", "late", "time out", "other", "offer"),
    ("visit", "late", "time out 1", "time out 2", "claim"),
    *(("run", "waits", "claim 1", "claim 2", other) for other in ("move", "poll")),
    ("run", "late", "begin", "time out", "claim"),
    ("process", "none", "offer 1", "offer 2", "begin"),
    ("process", "registered", "begin 1", "begin 2", "claim"),
    ("process", "registered", "begin", "offer", "claim"),
    *(("job", "late", one, "time out", "claim") for one in ("offer", "fail")),
    ("job", "late", "fail", "time out", "offer"),
    ("job", "late", "time out 1", "time out 2", "claim"),
    ("visit", "late", "finish", "time out", "claim"),
    ("visit", "late", "time out", "offer", "claim"),
    ("visit", "waits", "claim 1", "claim 2", "offer"),
    *(("run", "begun", one, "time out", "claim") for one in ("finish", "fail")),
    ("run", "begun", "time out 1", "time out 2", "claim"),
    ("run", "late", "begin", "time out", "move"),
    ("run", "waits", "poll 1", "poll 2", "claim"),
    ("process", "none", "offer", "begin", "claim"),
    ("process", "late", "accept present", "time out", "claim"),
    ("process", "late", "time out 1", "time out 2", "claim"),
    ("process", "twice", "accept late", "accept present", "claim"),
    ("process", "two", "accept one", "accept other", "claim"),
]


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_in_every_order(case: tuple[str, ...], every: Interleavings, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(case[0], monkeypatch) as found:
        counted = every.order(found, *case[1:], alike=True)
    print(", ".join(case), "-", counted)
    assert counted.deadlocks == 0


@pytest.mark.parametrize(
    "case", [("process", "late", "fail present", "time out"), ("visit", "late", "time out", "claim")], ids=", ".join
)
def test_nothing_else_comes_of_those_that_are_left_out(
    case: tuple[str, ...], every: Interleavings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(case[0], monkeypatch) as found:
        each = every.order(found, *case[1:])
        some = every.again(found, *case[2:], alike=True)
    print(", ".join(case), "-", each, "-", some)
    assert some.outcomes == each.outcomes
    assert some.seen < each.seen
