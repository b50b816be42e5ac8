"""`tidemill stage resweep` on a real database: the walk is made by a worker of this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from app.cli.interrupts import Interrupts
from stages import resweep
from stages.model import ResweepState
from tests.kit.cli import Tidemill, one_sentence
from tests.kit.stages_shop import Shop, declare, execute, names, only, parts, shop


@pytest.fixture(autouse=True)
def own(database_url: str, broker_url: str) -> Iterator[Shop]:
    with shop() as found:
        found.stage("price", wants=lambda item, _: item.id < "i0003")
        found.stage("tag", wants=False)
        declare()
        found.put(*names(7))
        yield found


def test_a_walk_is_started_and_looked_at(tidemill: Tidemill, own: Shop) -> None:
    # S16
    said = tidemill("stage resweep item.price --rate 1000/s")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("a walk over item.price has begun, about 7 entities in ")
    assert one_sentence(tidemill("stage resweep price"), "a walk over item.price is under way")
    [told] = tidemill("stage resweep --status --json").data["resweeps"]
    assert (told["state"], told["stage"], told["rate"], told["asked"]) == ("running", "price", 1000.0, 0)
    for _ in range(20):
        own.all_due()
        own.walk()
    lines = tidemill("stage resweep price --status").out.splitlines()
    assert lines[1].split()[1:6] == ["item.price", "done", "100.0%", "7", "3"]


def test_of_a_kind_all_stages_are_asked(tidemill: Tidemill, own: Shop) -> None:
    assert "a walk over item has begun" in tidemill("stage resweep item").out
    own.walk()
    assert {name for name, _ in own.asked} == {"price", "tag"}
    assert tidemill("stage resweep item --status --json").data["resweeps"][0]["stage"] is None
    assert tidemill("stage resweep item.tag --status").out == "there was no walk yet\n"


def test_it_is_paused_resumed_and_given_another_rate(tidemill: Tidemill) -> None:
    tidemill("stage resweep item")
    assert tidemill("stage resweep item --pause").out.endswith("is paused: tidemill stage resweep item --resume\n")
    assert only().state is ResweepState.PAUSED
    assert tidemill("stage resweep item --resume --rate 6/min").out == "the walk over item goes on, rate 6/min\n"
    assert (only().state, only().rate) == (ResweepState.RUNNING, 0.1)
    tidemill("stage resweep item --resume --rate none")
    assert only().rate is None


def test_cancel_shows_how_far_it_is_and_asks(tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch) -> None:
    tidemill("stage resweep item")
    said = tidemill("stage resweep item --cancel")
    assert (said.code, one_sentence(said, "Nobody can be asked here")) == (2, True)
    assert said.out == "0 of about 7 entities were asked about, 0 times wanted\n"
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda _question: False)
    assert tidemill("stage resweep item --cancel").out.endswith("Nothing was changed.\n")
    assert only().state is ResweepState.RUNNING
    assert tidemill("stage resweep item --cancel --yes").code == 0
    assert only().state is ResweepState.CANCELLED
    assert one_sentence(tidemill("stage resweep item --cancel --yes"), "no walk over item is under way")


def test_wait_shows_progress_until_the_end(tidemill: Tidemill, own: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.progress.LINE_SECONDS", 0.0)
    monkeypatch.setattr(Interrupts, "wait", lambda _self, _seconds: own.walk() < 0)
    said = tidemill("stage resweep item.price --wait")
    assert (said.code, said.err) == (0, "7 of 7 entities asked about\n")
    assert said.out.splitlines()[1].startswith("the walk over item.price is done in ")
    assert said.out.endswith(": 7 entities asked about, 3 times wanted\n")


def test_leaving_it_alone_does_not_end_it(tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Interrupts, "wait", lambda _self, _seconds: True)
    said = tidemill("stage resweep item.price --wait")
    assert said.code == 130
    assert said.out.endswith("goes on: tidemill stage resweep item.price --status\n")
    assert only().state is ResweepState.RUNNING


def test_waiting_for_a_walk_that_is_cancelled(tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch) -> None:
    tidemill("stage resweep item")

    def cancelled(_self: Interrupts, _seconds: float) -> bool:
        resweep.cancel(only().id)
        return False

    monkeypatch.setattr(Interrupts, "wait", cancelled)
    said = tidemill("stage resweep item --status --wait")
    assert (said.code, "the walk over item is cancelled in " in said.out) == (1, True)


def test_the_last_error_is_told(tidemill: Tidemill, own: Shop) -> None:
    tidemill("stage resweep item.price")
    part = parts()[0].part
    execute(sa.text("update tidemill.resweep_part set error = E'no table\\nx' where part = :part"), part=part)
    assert "! walk 1, the last error: no table\n" in tidemill("stage resweep --status").out


def test_a_walk_begins_where_its_code_is(tidemill: Tidemill) -> None:
    execute("insert into tidemill.entity_kind (kind) values ('car')")
    said = tidemill("stage resweep car")
    assert (said.code, one_sentence(said, "the code of car is not here", "TIDEMILL_MODULES")) == (1, True)


@pytest.mark.parametrize("name", ["itm", "item.prce", "'; drop table tidemill.resweep; --", "item.\x00", "x" * 50_000])
def test_an_unknown_name_is_told(tidemill: Tidemill, name: str) -> None:
    for more in ([], ["--pause"], ["--status"]):
        said = tidemill("stage resweep", name, *more)
        assert (said.code, one_sentence(said, "there is no stage and no kind")) == (1, True)
        assert len(said.err) < 300


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("", "a STAGE, or a KIND"),
        ("--wait", "a STAGE, or a KIND"),
        ("--pause", "a STAGE, or a KIND"),
        ("--status --wait", "a STAGE, or a KIND"),
        ("item --pause --resume", "Say one of --pause and --resume"),
        ("item --pause --rate 1/s", "--rate goes with"),
        ("item --cancel --wait", "--wait goes with"),
        ("item --json", "--json goes with --status"),
        ("item --rate fast", "'fast' is not a rate"),
        ("item --rate 0/s", "'0/s' is not a rate"),
    ],
)
def test_wrong_usage_is_one_sentence(tidemill: Tidemill, words: str, part: str) -> None:
    said = tidemill(f"stage resweep {words}")
    assert (said.code, one_sentence(said, part)) == (2, True)
    assert resweep.overview() == []


@pytest.mark.parametrize("rate", ["0.000001/d", "1e5/s"])
def test_rates_that_make_no_sense(tidemill: Tidemill, rate: str) -> None:
    said = tidemill("stage resweep item --rate", rate)
    assert said.code in (1, 2)
    assert one_sentence(said, "rate")
