"""What `tidemill status`, `queue` and `doctor` say of stages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.settings import settings
from stages.model import EntityKind, Resweep, ResweepPart, Stage
from tests.kit.cli import Tidemill, live_worker
from tests.kit.visit_rows import errors, register, visit


@pytest.fixture(autouse=True)
def _stages(session: Session, broker_url: str) -> None:
    register(session, "predict", "publish")


def test_status_counts_stages(tidemill: Tidemill, session: Session) -> None:
    visit(session, "late", due_at=sa.func.now() - timedelta(minutes=2))
    visit(session, "low", due_at=None, low_at=sa.func.now())
    visit(session, "parked", state="parked")
    register(session, "publish", ask_failures=1, ask_failure="x")
    with live_worker("stage.offer.publish", "stage.offer.publish.low", "stage.offer.resweep"):
        told = tidemill("status --json").data
        said = tidemill("status").out
    assert told["stages"].pop("oldest") >= 120
    assert told["stages"] == {
        "stages": 2,
        "paused": 0,
        "failing": 1,
        "ready": 1,
        "late": 1,
        "later": 0,
        "low": 1,
        "running": 0,
        "parked": 1,
    }
    names = {each["name"]: each for each in told["queues"]}
    # What a worker takes and is empty beside the stage is not listed.
    assert sorted(names) == ["stage.offer.predict", "stage.offer.predict.low", "stage.offer.publish"]
    assert (names["stage.offer.predict.low"]["ready"], names["stage.offer.predict"]["holds"]) == (1, "visits")
    assert "! stage.offer.predict: 1 visits are ready and no live worker takes them" in said
    assert "2 declared, 0 visits running, 1 ready, 0 later, 1 in low lanes" in said
    assert "! 1 visits are late, ready for over a minute, the first for 2min" in said
    assert "! 1 visits are parked: tidemill stage parked" in said
    assert "! should_process failed in 1 stages: tidemill stage list" in said


def test_a_paused_stage_is_not_late_and_its_low_lane_is_paused_too(tidemill: Tidemill, session: Session) -> None:
    visit(session, due_at=sa.func.now() - timedelta(minutes=2), low_at=sa.func.now())
    tidemill("stage pause predict")
    told = tidemill("status --json").data
    assert (told["stages"]["late"], told["stages"]["paused"]) == (0, 1)
    assert [each["paused"] for each in told["queues"]] == [True, True]
    assert not any(each["stands_still"] for each in told["queues"])


def test_queue_knows_the_queues_of_stages(tidemill: Tidemill) -> None:
    assert tidemill("queue limit stage.offer.predict --parallel 2").err == ""
    assert "yet" in tidemill("queue limit stage.offer.nobody --parallel 2").err


def findings(tidemill: Tidemill) -> dict[str, dict[str, str]]:
    found = tidemill("doctor --json").data["findings"]
    assert all(each["advice"] for each in found if each["level"] != "ok")
    return {each["check"]: each for each in found}


def test_doctor_on_healthy_stages(tidemill: Tidemill, session: Session) -> None:
    session.execute(sa.delete(Stage))
    session.execute(sa.delete(EntityKind))
    session.commit()
    found = findings(tidemill)
    for check in ("watched tables", "stage workers", "parked visits", "should_process", "resweeps", "shards"):
        assert found[check]["level"] == "ok", found[check]


def test_doctor_finds_tables_that_are_not_watched(tidemill: Tidemill, session: Session) -> None:
    # S7
    found = findings(tidemill)["watched tables"]
    assert (found["level"], "no change of offer is heard of" in found["detail"]) == ("fail", True)
    assert "select tidemill.watch('offer', 'offer')" in found["advice"]
    connection = session.connection()
    connection.exec_driver_sql("create table public.offer (id text primary key, version bigint not null default 1)")
    connection.exec_driver_sql("select tidemill.watch('public.offer')")
    session.commit()
    assert findings(tidemill)["watched tables"]["level"] == "ok"
    session.connection().exec_driver_sql("alter table public.offer disable trigger tidemill_updated")
    session.commit()
    assert findings(tidemill)["watched tables"]["level"] == "fail"


def test_doctor_finds_stages_that_nobody_visits(tidemill: Tidemill) -> None:
    queues = [f"stage.offer.{each}" for each in ("predict", "predict.low", "publish", "publish.low", "system")]
    with live_worker(*queues[1:]):
        found = findings(tidemill)["stage workers"]
    assert (found["level"], "no live worker takes stage.offer.predict:" in found["detail"]) == ("warn", True)
    assert "celery -A app worker -Q stage.offer.predict" in found["advice"]
    with live_worker(*queues):
        found = findings(tidemill)["stage workers"]
        assert (found["level"], found["detail"]) == ("ok", "2 stages, none without a live worker")
        assert tidemill("status --json").data["stages"]["stages"] == 2


def test_doctor_finds_what_is_parked_and_what_cannot_be_asked(tidemill: Tidemill, session: Session) -> None:
    errors(session, ["KeyError: 'a'", "KeyError: 'b'", "no"])
    register(session, "publish", ask_failures=7, ask_failure="ValueError: no price\nx")
    found = findings(tidemill)
    assert found["parked visits"]["detail"] == "3 in offer.predict, most often: KeyError: 'a'"
    assert "tidemill stage redrive STAGE" in found["parked visits"]["advice"]
    assert found["should_process"]["detail"].endswith("7 times in offer.publish, the last: ValueError: no price")
    assert found["should_process"]["advice"].endswith("tidemill stage reset offer.publish")


@pytest.mark.parametrize(
    ("part", "level", "words"),
    [
        ({"due_at": sa.func.now()}, "ok", "1 under way"),
        ({"due_at": sa.func.now() - timedelta(hours=1)}, "fail", "offer.system stands still since 1h"),
        ({"due_at": sa.func.now() - timedelta(hours=1), "not_before": sa.func.now()}, "ok", "none stands still"),
        ({"due_at": sa.func.now(), "error": "no table\nx"}, "warn", "meets errors, the last: no table"),
    ],
)
def test_doctor_finds_a_walk_that_stands_still(
    tidemill: Tidemill, session: Session, part: dict[str, Any], level: str, words: str
) -> None:
    # S16
    walk = Resweep(kind="offer", stage="system", total=10)
    session.add(walk)
    session.flush()
    session.add(ResweepPart(resweep_id=walk.id, part=0, queue="stage.offer.resweep", **part))
    session.commit()
    found = findings(tidemill)["resweeps"]
    assert (found["level"], words in found["detail"]) == (level, True), found
    session.execute(sa.update(Resweep).values(state="cancelled", ended_at=sa.func.now()))
    session.commit()
    assert findings(tidemill)["resweeps"]["detail"] == "none under way"


def test_doctor_finds_another_number_of_shards(tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch) -> None:
    # S13
    monkeypatch.setenv("TIDEMILL_SHARDS", "7")
    settings.cache_clear()
    found = findings(tidemill)["shards"]
    assert (found["level"], found["advice"]) == ("warn", "set TIDEMILL_SHARDS=16, or leave it out")
    monkeypatch.delenv("TIDEMILL_SHARDS")
    settings.cache_clear()
    assert findings(tidemill)["shards"]["level"] == "ok"
