"""`tidemill stage` on a real database where no code of the stages is at hand, and what other commands say of them."""

from __future__ import annotations

import json
import sys
from datetime import timedelta

import pytest
import sqlalchemy as sa
from google.protobuf.wrappers_pb2 import StringValue
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.limits import Queue
from stages import redriving
from stages.model import Stage
from tests.kit import visit_rows
from tests.kit.cli import Tidemill, live_worker, one_sentence, script
from tests.kit.visit_rows import errors, many, register, row, states, visit

READING = [
    "list",
    "peek predict",
    "peek predict --low",
    "check offer e1",
    "states offer e1",
    "parked",
    "parked predict",
]
OF_STAGE = ["peek {}", "parked {}", "pause {}", "resume {}", "limit {} --rate 1/s", "reset {}", "redrive {} --yes"]
OF_KIND = ["check {} e1", "states {} e1", "offer {} e1 predict", "delete {} e1 predict --yes", "list --kind {}"]


@pytest.fixture(autouse=True)
def _stages(session: Session, broker_url: str) -> None:
    register(session, "predict", "publish")


# Reading


@pytest.mark.parametrize("words", READING)
def test_reading_speaks_to_people_and_programs(tidemill: Tidemill, session: Session, words: str) -> None:
    for filled in (False, True):
        if filled:
            visit(session, due_at=None, low_at=sa.func.now())
            visit(session, stage="publish", state="parked")
            visit(session, "e2", state="parked")
            visit_rows.state(session, "e1", "predict", "x/google.protobuf.StringValue", b"")
        said = tidemill(f"stage {words}")
        assert (said.code, said.err) == (0, "")
        assert said.out
        assert "\x1b" not in said.out
        assert isinstance(tidemill(f"stage {words} --json").data, dict)


def test_list_shows_depth_limits_and_what_is_wrong(tidemill: Tidemill, session: Session) -> None:
    register(session, "predict", declared={"rate_limit": None, "max_parallel": 2}, ask_failures=3, ask_failure="Key\nx")
    visit(session)
    visit(session, "e2", state="parked")
    tidemill("stage limit predict --rate 6/min")
    lines = tidemill("stage list").out.splitlines()
    words = "stage ready later low running parked oldest slots asks failed limits"
    assert lines[0].split() == words.split()
    assert lines[1].startswith("offer.predict  1 ")
    assert lines[1].endswith("6/min")
    assert "! offer.predict: 1 are ready and no live worker takes them" in lines
    assert "! should_process of offer.predict failed 3 times, the last: Key" in lines
    assert lines[-1].endswith("to go back to them: tidemill stage limit offer.predict --parallel 2 --rate none")
    with live_worker("stage.offer.predict"):
        tidemill("stage pause predict")
        told = tidemill("stage list --json").data["stages"]
    [predict] = [each for each in told if each["name"] == "predict"]
    assert (predict["depth"]["ready"], predict["paused"], predict["slots"]) == (1, True, 2)
    assert (predict["rate_limit"], predict["max_parallel"], predict["declared"]["max_parallel"]) == ("6/min", None, 2)


def test_a_stage_that_is_gone_is_marked(tidemill: Tidemill, session: Session) -> None:
    visit(session, state="parked")
    session.execute(sa.update(Stage).values(removed_at=sa.func.now()))
    session.commit()
    assert "! offer.predict is not declared any more" in tidemill("stage list").out
    assert one_sentence(tidemill("stage redrive predict --yes"), "not declared any more")
    assert one_sentence(tidemill("stage redrive predict --id e1"), "not declared any more")
    assert one_sentence(tidemill("stage offer offer e1 predict"), "not declared any more")
    assert tidemill("stage redrive --all --yes").out == "Nothing matches.\n"


def test_peek(tidemill: Tidemill, session: Session) -> None:
    visit(session, "a")
    visit(session, "b", due_at=sa.func.now() + timedelta(hours=1), attempts=2, error="E: no\nmore")
    assert [each["entity_id"] for each in tidemill("stage peek predict --json").data["waiting"]] == ["a", "b"]
    assert tidemill("stage peek predict --ready").out.splitlines()[1].startswith("a ")
    assert tidemill("stage peek predict").out.splitlines()[2].endswith("E: no")
    assert "--limit shows more" in tidemill("stage peek predict --limit 1").err
    assert tidemill("stage peek predict --low").out == "nothing waits in the low lane of offer.predict\n"


def test_check_says_where_an_entity_is_and_who_works_on_it(tidemill: Tidemill, session: Session) -> None:
    assert tidemill("stage check offer e1").out == "offer 'e1' is in the queue of no stage\n"
    visit(session, state="running")
    visit_rows.guard(session)
    visit(session, stage="publish", state="parked", traceback="Traceback:\n  line", hops=3, chain="a → b")
    said = tidemill("stage check offer e1").out
    assert "worker w/1 works on it for predict since 2" in said
    assert "publish: 3 visits led here without a pause: a → b" in said
    assert said.endswith("Traceback of publish\nTraceback:\n  line\n")
    told = tidemill("stage check offer e1 --json").data
    assert [each["state"] for each in told["visits"]] == ["running", "parked"]
    assert (told["working"][0]["worker"], told["working"][0]["live"]) == ("w/1", True)


@pytest.mark.parametrize("entity_id", ["-5", "A-1/3", "it's \"/\\ {NULL},%s é", "'; drop table tidemill.stage; --"])
def test_ids_are_text(tidemill: Tidemill, session: Session, entity_id: str) -> None:
    assert tidemill("stage offer offer", entity_id, "predict").code == 0
    found = tidemill("stage check offer --json", entity_id).data
    assert (found["id"], [each["stage"] for each in found["visits"]]) == (entity_id, ["predict"])
    assert tidemill("stage delete offer --yes", entity_id, "predict").code == 0


def test_ids_are_shown_as_they_are_written(tidemill: Tidemill, session: Session) -> None:
    assert tidemill("stage check offer", "A\\/1").out == "offer 'A\\/1' is in the queue of no stage\n"
    assert tidemill("stage check offer", "a\nb").out == "offer 'a\\nb' is in the queue of no stage\n"


def test_states(tidemill: Tidemill, session: Session) -> None:
    value = StringValue(value="half").SerializeToString()
    visit_rows.state(session, "e1", "predict", "type.googleapis.com/google.protobuf.StringValue", value, 4)
    visit_rows.state(session, "e1", "publish", "type.googleapis.com/shop.v1.Unknown", b"\x08\x01")
    lines = tidemill("stage states offer e1").out.splitlines()
    assert 'value: "half"' in lines[1]
    assert lines[1].split()[:4] == ["predict", "google.protobuf.StringValue", "4", "6"]
    assert lines[2].startswith("publish  shop.v1.Unknown")
    assert lines[2].endswith("0x0801")
    told = tidemill("stage states offer e1 --json").data["states"]
    assert [(each["version"], each["state"]) for each in told] == [(4, "half"), (1, None)]


def test_states_without_the_modules(tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.stage.application", lambda: (_ for _ in ()).throw(_no_modules()))
    said = tidemill("stage states offer e1")
    assert (said.code, said.out) == (0, "no stage keeps a state beside offer 'e1'\n")
    assert said.err == "Note: TIDEMILL_MODULES='x' cannot be imported; states are shown without their text\n"


def _no_modules() -> Exception:
    from app.errors import SettingsError

    return SettingsError("TIDEMILL_MODULES='x' cannot be imported")


def test_as_the_console_script_where_no_module_is_at_hand(env: dict[str, str], session: Session) -> None:
    visit(session, state="parked")
    away = env | {"TIDEMILL_MODULES": "nowhere.to.be.found"}
    for words in ("list", "peek predict", "check offer e1", "parked", "redrive predict --yes", "pause predict"):
        said = script(f"stage {words}", away)
        assert (said.code, said.err) == (0, ""), words
    assert script("stage limit predict --parallel 2", away | {"LC_ALL": "C"}).code == 0
    said = script("stage states offer e1 --json", away)
    assert (said.code, json.loads(said.out)["states"]) == (0, [])
    assert "'nowhere.to.be.found' cannot be imported" in said.err


# What is no stage, no kind, no time


@pytest.mark.parametrize("words", OF_STAGE)
def test_an_unknown_stage_is_told_with_the_nearest(tidemill: Tidemill, words: str) -> None:
    for name, part in (("predct", "did you mean offer.predict?"), ("x" * 50_000, "(50000 characters)")):
        said = tidemill("stage", *words.format(name).split())
        assert (said.code, said.out) == (1, "")
        assert one_sentence(said, "there is no stage", part)
        assert len(said.err) < 300


@pytest.mark.parametrize("words", OF_KIND)
def test_an_unknown_kind_is_told_with_the_nearest(tidemill: Tidemill, words: str) -> None:
    said = tidemill("stage", *words.format("ofer").split())
    assert (said.code, said.out) == (1, "")
    assert one_sentence(said, "there is no kind 'ofer': did you mean offer?")


@pytest.mark.parametrize("name", ["'; drop table tidemill.stage; --", "offer.\x00", "../../etc", "%", "{0}", "offer."])
def test_names_that_make_no_sense(tidemill: Tidemill, session: Session, name: str) -> None:
    for words in ("stage peek", "stage pause", "stage parked"):
        assert one_sentence(tidemill(words, name), "there is no stage")
    assert one_sentence(tidemill("stage check", name, "e1"), "there is no kind")
    assert session.execute(sa.select(sa.func.count()).select_from(Stage)).scalar_one() == 2


@pytest.mark.parametrize("entity_id", ["", "x" * 501, "a\x00b"])
def test_ids_that_make_no_sense(tidemill: Tidemill, entity_id: str) -> None:
    for words in (["check", "offer", entity_id], ["offer", "offer", entity_id, "predict"]):
        said = tidemill("stage", *words)
        assert (said.code, one_sentence(said, "must be text of 1 to 500 characters")) == (1, True)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("peek", ("Missing argument 'STAGE'",)),
        ("peek predict --limit 0", ("0 is not in the range",)),
        ("peek predict --limit 99999999999999999999", ("is not in the range",)),
        ("peek predict --limit many", ("'many' is not a whole number",)),
        ("check offer", ("Missing argument 'ID'",)),
        ("check offer e1 --jsn", ("--jsn",)),
        ("limit predict", ("--rate, --parallel or --burst",)),
        ("limit predict --rate fast", ("'fast' is not a rate",)),
        ("limit predict --rate 0/s", ("'0/s' is not a rate",)),
        ("limit predict --rate 1e999/s", ("is not a rate",)),
        ("limit predict --rate -1/s", ("is not a rate",)),
        ("limit predict --parallel 0", ("0 is not in the range",)),
        ("limit predict --parallel 3000000000", ("is not in the range",)),
        ("limit predict --burst 0", ("is not in the range",)),
        ("offer offer e1 predict --at 2030-07-01T12:00:00", ("has no time zone", "2030-07-01T12:00:00Z")),
        ("offer offer e1 predict --at soon", ("'soon' is neither a time",)),
        ("redrive", ("a STAGE, --error, --group or --all",)),
        ("redrive --id e1", ("a STAGE, --error, --group or --all",)),
        ("redrive --all --id e1", ("--all means every stage",)),
        ("redrive predict --all", ("--all means every stage",)),
        ("redrive predict --id e1 --error x", ("neither --error nor --group",)),
        ("redrive --error x --id e1", ("--id names entities of a STAGE",)),
        ("redrive predict", ("Redrive 1 visit? Nobody can be asked here: say --yes",)),
        ("delete offer e1 predict", ("Nobody can be asked here: say --yes",)),
    ],
)
def test_wrong_usage_is_one_sentence(tidemill: Tidemill, session: Session, words: str, parts: tuple[str, ...]) -> None:
    visit(session, state="parked")
    said = tidemill(f"stage {words}")
    assert said.code == 2
    assert one_sentence(said, *parts)
    assert states(session) == {"e1": "parked"}


@pytest.mark.parametrize(
    ("at", "part"), [("9999999w", ""), ("0001-01-01T00:00:00Z", "100 years"), ("2h ago", "lies behind")]
)
def test_times_that_make_no_sense(tidemill: Tidemill, session: Session, at: str, part: str) -> None:
    said = tidemill("stage offer offer e1 predict --at", at)
    assert said.code in (1, 2)
    assert one_sentence(said, part)
    assert row(session) is None


# Changing


def test_pause_resume_and_limit(tidemill: Tidemill, session: Session) -> None:
    assert tidemill("stage pause predict").out == "offer.predict is paused: tidemill stage resume offer.predict\n"
    assert "was already paused" in tidemill("stage pause predict").out
    assert tidemill("stage resume predict").out == "offer.predict is open\n"
    assert tidemill("stage resume predict").out == "offer.predict was not paused\n"
    said = tidemill("stage limit predict --rate 100/s --parallel none --burst 20")
    assert said.out == "offer.predict: rate 100/s, parallel none, burst 20\n"
    found = session.execute(sa.select(Queue).where(Queue.name == "stage.offer.predict")).scalar_one()
    assert (found.rate, found.max_parallel, found.burst) == (100.0, None, 20.0)


def test_reset(tidemill: Tidemill, session: Session) -> None:
    register(session, "predict", ask_failures=3, ask_failure="KeyError: 1")
    assert tidemill("stage reset predict").out == (
        "should_process of offer.predict had failed 3 times; the count begins anew\n"
    )
    assert "should_process" not in tidemill("stage list").out


def test_offer_and_delete(tidemill: Tidemill, session: Session) -> None:
    said = tidemill("stage offer offer e1 predict --at 2h")
    assert said.out == "offer 'e1' is in the queue of predict: tidemill stage check offer e1\n"
    assert tidemill("stage offer offer e1 offer.predict --at 3h").out == (
        "offer 'e1' was in the queue of predict already, for no later time\n"
    )
    assert tidemill("stage offer offer e1 system --low --at now").code == 0
    assert one_sentence(tidemill("stage offer offer e1 predct"), "did you mean offer.predict")
    said = tidemill("stage delete offer e1 predict --yes")
    assert said.out.splitlines()[0].startswith("offer 'e1' is waiting in predict for 2")
    assert said.out.splitlines()[1] == "it is out of the queue"
    assert one_sentence(tidemill("stage delete offer e1 predict --yes"), "is not in the queue of predict")


def test_parked_are_grouped_and_redriven_by_group(tidemill: Tidemill, session: Session) -> None:
    errors(session, [*(f"KeyError: 'k{n}'" for n in range(4)), "Timeout after 3 s", "Timeout after 44 s"])
    told = tidemill("stage parked --json").data
    assert [(each["count"], each["stage"]) for each in told["groups"]] == [(4, "predict"), (2, "predict")]
    assert len(told["visits"]) == 6
    keys, timeouts = (each["name"] for each in told["groups"])
    assert len(tidemill(f"stage parked --group {timeouts} --json").data["visits"]) == 2
    said = tidemill(f"stage redrive --group {timeouts} --yes")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[1].startswith(f"offer.predict  {timeouts}  2 ")
    assert said.out.splitlines()[-1] == "2 visits redriven"
    assert sorted(states(session).values()) == ["parked"] * 4 + ["waiting"] * 2
    assert tidemill(f"stage redrive predict --group {timeouts} --yes").out == "Nothing matches.\n"
    assert tidemill("stage redrive --error keyerror --yes").out.splitlines()[-1] == "4 visits redriven"
    assert tidemill("stage parked").out == "nothing is parked\n"
    assert tidemill(f"stage parked --group {keys}").out == "nothing of the kind is parked\n"


def test_redrive_named_ones_says_what_is_not_parked(tidemill: Tidemill, session: Session) -> None:
    visit(session, state="parked")
    said = tidemill("stage redrive predict --id e1 --id e2 --id e1")
    assert (said.code, said.out) == (1, "offer 'e1' is visited again\n")
    assert said.err == "Error: offer 'e2' is not parked in predict\n"


@pytest.mark.parametrize("words", ["redrive predict", "redrive --all", "delete offer e1 predict"])
def test_no_is_an_answer(tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    visit(session, state="parked")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda _question: False)
    said = tidemill(f"stage {words}")
    assert (said.code, said.out.splitlines()[-1]) == (1, "Nothing was changed.")
    assert states(session) == {"e1": "parked"}


def test_what_somebody_else_holds_is_told(tidemill: Tidemill, session: Session, engine: Engine) -> None:
    visit(session, state="parked")
    with Session(engine) as other:
        other.execute(sa.text("select from tidemill.stage_visit for update"))
        said = tidemill("stage redrive --all --yes")
    assert (said.code, said.out.splitlines()[-1]) == (0, "0 visits redriven")
    assert said.err == "Note: 1 are being changed by somebody just now and stay parked: try again\n"


@pytest.mark.parametrize("terminal", [True, False])
def test_long_work_shows_how_far_it_is(
    tidemill: Tidemill,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,  # noqa: FBT001
) -> None:
    many(session, redriving.PAGE + 1)
    monkeypatch.setattr("app.cli.progress.LINE_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    said = tidemill("stage redrive --all --yes")
    assert said.out.splitlines()[-1] == "501 visits redriven"
    lines = said.err.replace("\r", "\n").split("\n")
    assert [line for line in lines if line][-1].endswith("501 of 501 redriven")
    assert said.err.endswith("\n")
