"""Settings of actors that are changed at run time, and what a worker makes of them: blocked, limits, timeouts (P6)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

import processes
from app.errors import BadRequest, NotFound
from processes import outside, preferences
from processes.preferences import FRESH_SECONDS
from processes.states import ProcessState
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.waiting import wait_until


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def _ready(ways: list[str], actor: str = "toil") -> int:
    found = r.begin(processes.start(w.crowd, ways, actor))
    r.well_with(r.handed_out("crowd"), ways, actor)
    return found


def test_a_blocked_actor_gets_nothing(session: Session) -> None:
    # P6: until it is unblocked; the others go on.
    found = _ready(["x", "y"])
    assert preferences.configure("toil", {"blocked": True}) == {"blocked": (False, True)}
    assert r.serve("toil") == 0
    assert r.hand_out("toil") is None
    beside = processes.start(w.journey, 1)
    r.serve("journey")
    assert r.state(session, beside) is ProcessState.FINISHED
    assert preferences.configure("toil", {"blocked": "off"}) == {"blocked": (True, False)}
    assert r.serve("toil") == 2
    assert r.state(session, found) is ProcessState.FINISHED


def test_what_is_in_work_when_it_is_blocked_counts(session: Session) -> None:
    found = _ready(["x"])
    held = r.handed_out("toil")
    preferences.configure("toil", {"blocked": True})
    assert r.word(r.well(held)) == "taken"
    assert r.state(session, found) is ProcessState.FINISHED


def test_a_blocked_decider_begins_and_waits(session: Session) -> None:
    preferences.configure("journey", {"blocked": True})
    found = processes.start(w.journey, 1)
    r.serve("journey")
    assert r.state(session, found) is ProcessState.ACTIVE
    assert r.tasks(session, found) == {1: "READY"}
    preferences.configure("journey", {"blocked": False})
    r.serve("journey")
    assert r.process(session, found).value == w.value_of(1)


def test_so_many_at_once(session: Session) -> None:
    # For the cluster: whoever asks.
    _ready(["x"] * 5)
    preferences.configure("toil", {"max_parallel": 2})
    held = [r.hand_out("toil", worker) for worker in ("w/1", "w/2", "w/3")]
    first = held[0]
    assert first
    assert held[1]
    assert held[2] is None
    assert r.hand_out("toil") is None
    r.well(first)
    assert r.hand_out("toil") is not None
    preferences.configure("toil", {"max_parallel": None})
    assert len(r.handed_out_together("toil", 100)) == 2


def test_as_the_code_says() -> None:
    _ready(["x"] * 6, "squeeze")
    # What one worker has claimed together is one call at a time.
    assert len(r.handed_out_together("squeeze", 3)) == 3
    assert r.hand_out("squeeze", "w/2")
    assert r.hand_out("squeeze", "w/3")
    assert r.hand_out("squeeze", "w/4") is None


def test_never_more_at_once_than_allowed(session: Session) -> None:
    found = _ready(["x"] * 12, "squeeze")
    servers = [threading.Thread(target=r.serve, args=("squeeze",), kwargs={"take": 1}) for _ in range(6)]
    for each in servers:
        each.start()
    for each in servers:
        each.join(60)
    wait_until(lambda: r.serve("squeeze") == 0)
    assert r.state(session, found) is ProcessState.FINISHED
    assert max(row.inside for row in w.spans(session, "squeeze")) <= 3
    assert r.check(session) == {}


def test_a_rate(session: Session) -> None:
    """At most so many in any second, and a burst of a second's worth at first."""
    preferences.configure("march", {"rate_limit": "2/min"})
    found = _ready(["x"] * 5, "march")
    held = r.handed_out_together("march", 100)
    assert 1 <= len(held) <= 2
    assert r.hand_out("march", "w/2") is None or len(held) == 1
    assert r.hand_out("march", "w/3") is None
    preferences.configure("march", {"rate_limit": None})
    assert len(r.handed_out_together("march", 100)) >= 3
    assert r.state(session, found) is ProcessState.ACTIVE


def test_the_next_hand_out_goes_by_the_work_timeout_that_is_set_now(session: Session) -> None:
    # P3
    preferences.configure("toil", {"work_timeout": "10min"})
    server = r.server()
    lasts: list[float] = []

    class Looks(r.Calls):
        def call_for_value(self, work: object, name: str, *rest: object) -> tuple[None, str]:
            query = "SELECT extract(epoch FROM recovery_time - claimed_at) AS s FROM tidemill.decision WHERE number = 2"
            lasts.append(float(r.rows(session, query + " ORDER BY process_id DESC")[0].s))
            return None, "x"

    server.calls = Looks()
    _ready(["x"])
    server.serve("actor.toil", 10)
    preferences.configure("toil", {"work_timeout": "20min"})
    # A worker goes by what it has read for a moment.
    server.settings.rows = {name: (at - FRESH_SECONDS, row) for name, (at, row) in server.settings.rows.items()}
    _ready(["x"])
    server.serve("actor.toil", 10)
    assert [round(each) for each in lasts] == [600, 1200]


def test_what_an_operator_set_lasts_until_the_code_says_otherwise(session: Session) -> None:
    preferences.configure("toil", {"work_timeout": "20min", "max_parallel": 7})
    assert preferences.synchronize().changed == ()
    query = "SELECT extract(epoch FROM work_timeout) AS s FROM tidemill.actor_preferences WHERE name = 'toil'"
    assert r.rows(session, query)[0].s == 1200
    assert preferences.configure("toil", {"max_parallel": 3}) == {"max_parallel": (7, 3)}


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"work_timeout": "0s"},
        {"work_timeout": "50ms"},
        {"work_timeout": None},
        {"work_timeout": "soon"},
        {"max_restarts": -1},
        {"max_restarts": "many"},
        {"accept_first": "perhaps"},
        {"task_timeout": "1ms"},
        {"max_parallel": 0},
        {"max_parallel": "x"},
        {"rate_limit": "fast"},
        {"retry": "0"},
        {"fail_types": [7]},
        {"blocked": None},
        {"work_time_out": "1s"},
    ],
)
def test_settings_that_make_no_sense(words: dict[str, object], session: Session) -> None:
    query = "SELECT * FROM tidemill.actor_preferences WHERE name = 'toil'"
    before = r.rows(session, query)
    with pytest.raises(BadRequest):
        preferences.configure("toil", words)
    assert r.rows(session, query) == before


def test_nobody_has_no_settings() -> None:
    with pytest.raises(NotFound, match="did you mean toil"):
        preferences.configure("toill", {"blocked": True})
    with pytest.raises(BadRequest, match="done by workers"):
        outside.poll("toil", worker="w/1")
