"""`tidemill recover` on a real database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit import corruption as c
from tests.kit import process_rows as r
from tests.kit.cli import Tidemill


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


def test_a_sweep_by_hand_says_what_it_did(tidemill: Tidemill) -> None:
    # R1, R7
    said = tidemill("recover sweep")
    assert said.code == 0
    assert [line.split(maxsplit=1) for line in said.out.splitlines()] == [
        [name, "nothing to do"] for name in ("decisions", "processes", "graphs", "visits", "runs", "jobs")
    ]
    found, sound = c.journey(), c.journey()
    c.REPAIRABLE["no decision"].into(found.id)
    r.let_pass(table="graph")
    done = tidemill("recover sweep --domain process --json").data
    assert (done["graphs"]["examined"], done["graphs"]["repaired"]) == (2, 1)
    assert done["graphs"]["why"] == {"nobody_polls": 1, "in_work": 1, "waits": 1}
    assert set(done) == {"decisions", "processes", "graphs"}
    assert "1 examined" not in tidemill("recover sweep").out
    assert sound.id != found.id


def test_repairs_are_listed(tidemill: Tidemill) -> None:
    # R7
    assert tidemill("recover repairs").out == "nothing was repaired\n"
    found, other = c.journey(), c.journey()
    for each in (found, other):
        c.REPAIRABLE["no decision"].into(each.id)
    r.let_pass(table="graph")
    tidemill("recover sweep")
    assert tidemill("status --json").data["repairs"] == {"not_queued": 2}
    assert "not_queued 2: tidemill recover repairs" in tidemill("status").out
    lines = tidemill("recover repairs --since 1h").out.splitlines()
    assert lines[0].split() == ["at", "what", "finding", "action", "by"]
    assert len(lines) == 3
    assert f"process {found.id}/3  not_queued  queued  itself" in lines[2]
    listed = tidemill(f"recover repairs --subject {found.id} --json").data["repairs"]
    assert [(row["subject"], row["finding"]) for row in listed] == [(f"{found.id}/3", "not_queued")]
    assert tidemill("recover repairs --operation 7 --json").data == {"repairs": []}
    assert len(tidemill("recover repairs --limit 1 --json").data["repairs"]) == 1


@pytest.mark.parametrize(
    "words", ["recover sweep --domain nothing", "recover repairs --since soon", "recover repairs --operation 0"]
)
def test_what_makes_no_sense_is_refused(tidemill: Tidemill, words: str) -> None:
    said = tidemill(words)
    assert said.code == 2
    assert said.err.startswith("Error: ")
