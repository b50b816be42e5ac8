"""Claim, begin, finish, time out, offer and accept: two sessions in every order of their statements.

Three at once, and pairs with more orders: `tests/chaos/test_interleavings.py`. How a case is added: CONTRIBUTING.md.
"""

from __future__ import annotations

import pytest

from tests.kit.interleaved import world
from tests.kit.interleavings import Interleavings

#: What is claimed; the rows from which every order begins; what two sessions do.
CASES = [
    # J1 J2 J3
    ("job", "waits", "claim 1", "claim 2"),
    ("job", "waits", "claim", "offer"),
    ("job", "waits", "offer 1", "offer 2"),
    ("job", "empty", "offer 1", "offer 2"),
    ("job", "empty", "claim", "offer"),
    ("job", "limited", "claim 1", "claim 2"),
    ("job", "limited", "claim", "offer"),
    *(("job", "late", one, two) for one in ("finish", "fail", "commit") for two in ("time out", "offer", "claim")),
    ("job", "late", "time out", "claim"),
    ("job", "late", "time out", "offer"),
    ("job", "late", "time out 1", "time out 2"),
    ("job", "late", "offer", "claim"),
    ("job", "late", "offer 1", "offer 2"),
    # S2 S6 S9 S10 S12
    ("visit", "waits", "claim 1", "claim 2"),
    ("visit", "waits", "claim", "other"),
    ("visit", "waits", "claim", "offer"),
    ("visit", "waits", "offer 1", "offer 2"),
    *(("visit", "late", one, two) for one in ("leave", "fail") for two in ("time out", "offer", "other", "claim")),
    *(("visit", "late", "finish", two) for two in ("offer", "other", "claim", "change")),
    *(("visit", "late", "time out", two) for two in ("offer", "other", "claim")),
    ("visit", "late", "time out 1", "time out 2"),
    *(("visit", "late", "offer", two) for two in ("other", "claim")),
    ("visit", "late", "offer 1", "offer 2"),
    ("visit", "late", "other", "claim"),
    # T11 T16 T22
    ("run", "moved", "poll 1", "poll 2"),
    ("run", "moved", "poll", "claim"),
    ("run", "moved", "poll", "move"),
    ("run", "waits", "claim 1", "claim 2"),
    ("run", "waits", "claim", "move"),
    ("run", "waits", "claim", "poll"),
    ("run", "late", "time out", "claim"),
    ("run", "late", "time out 1", "time out 2"),
    *(("run", "late", "begin", other) for other in ("time out", "move", "poll", "claim")),
    *(("run", "begun", one, two) for one in ("finish", "fail") for two in ("time out", "move", "poll", "claim")),
    *(("run", "begun", "time out", other) for other in ("move", "poll", "claim")),
    ("run", "begun", "time out 1", "time out 2"),
    # P2 P4 P5 R2
    ("process", "none", "offer 1", "offer 2"),
    ("process", "none", "offer", "begin"),
    ("process", "registered", "begin 1", "begin 2"),
    ("process", "registered", "begin", "offer"),
    ("process", "registered", "begin", "claim"),
    ("process", "waits", "claim 1", "claim 2"),
    ("process", "late", "accept present", "claim"),
    ("process", "late", "fail present", "claim"),
    ("process", "late", "fail present", "time out"),
    ("process", "late", "time out", "claim"),
    ("process", "twice", "accept late", "accept present"),
    ("process", "twice", "accept late", "fail present"),
    ("process", "twice", "fail late", "accept present"),
    ("process", "two", "accept one", "accept other"),
    ("process", "two", "accept one", "fail other"),
]


@pytest.mark.parametrize("case", CASES, ids=", ".join)
def test_in_every_order(case: tuple[str, ...], every: Interleavings, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(case[0], monkeypatch) as found:
        counted = every.order(found, *case[1:])
    print(", ".join(case), "-", counted)
    assert counted.deadlocks == 0
