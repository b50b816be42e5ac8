"""What the command line foresees and explains: who waits, who would start, what a deploy starts, what was missed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.db import transaction
from tests.kit import reactive_cli as kit
from tests.kit.cli import Tidemill, one_sentence, script
from tests.kit.reactive_cli import ORDERS, day, evaluate, orders, register, states
from triggers import ctl, missed, pools, registration
from triggers.model import MissedWindow, ReactiveCursor
from triggers.service.service import Service
from triggers.trigger import Delta

TASK = "shop.marts.mart_a"
AT = "2026-07-02T00:00:00Z"


@pytest.fixture(autouse=True)
def _tasks(session: Session, broker_url: str) -> Iterator[None]:
    with kit.alone():
        register(kit.definition(TASK), kit.definition("shop.marts.mart_b", Delta("src.orders", "loaded_to", "2d")))
        yield


def missed_window(session: Session, task: str = TASK) -> None:
    with transaction() as tx:
        missed.lapsed(tx, task, 7, day(1), "the trigger did not hold any more")
    session.rollback()


# Who waits, who would start


def test_get_with_who_waits(tidemill: Tidemill) -> None:
    said = tidemill("ctl get dds.orders loaded_to --waiting-for")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[1].startswith(f"{TASK}  loaded_to  -      -        dds.orders.loaded_to must grow")
    ctl.advance("src.orders", loaded_to=day(1))
    said = tidemill("ctl get src.orders loaded_to --waiting-for")
    assert said.out == "src.orders.loaded_to is at 2026-07-01T00:00:00Z\nno task waits for it\n"
    told = tidemill("ctl get dds.orders --waiting-for --json").data
    assert (told["values"], [each["task"] for each in told["waiting"]]) == ([], [TASK])
    assert one_sentence(tidemill("ctl get nobody p --waiting-for"), "nobody.p has no value")


def test_a_dry_run_of_an_advance(tidemill: Tidemill, session: Session) -> None:
    said = tidemill(f"ctl advance dds.orders loaded_to={AT} --dry-run")
    assert said.out.splitlines() == [
        f"dds.orders.loaded_to would move to {AT}",
        "task               pool   starts   because",
        f"{TASK}  marts  at once  -",
        "Nothing was changed.",
    ]
    assert tidemill("ctl get dds.orders loaded_to").code == 1
    assert evaluate() == 0
    told = tidemill(f"ctl advance dds.orders loaded_to={AT} --dry-run --json").data
    assert told["would_start"] == [{"task": TASK, "pool": "marts", "held": None}]
    assert told["values"][0]["moved"] is True
    tidemill("reactive pause mart_a")
    assert "no      it is paused" in tidemill(f"ctl advance dds.orders loaded_to={AT} --dry-run").out
    assert "no task would start" in tidemill(f"ctl advance dds.orders other={AT} --dry-run").out
    assert states(session, TASK) == []


def test_a_dry_run_is_refused_as_the_advance_would_be(tidemill: Tidemill) -> None:
    orders(3)
    said = tidemill(f"ctl advance dds.orders loaded_to={AT} --dry-run")
    assert (said.code, one_sentence(said, "cannot be advanced back")) == (1, True)


def test_an_advance_tells_programs_what_moved(tidemill: Tidemill) -> None:
    told = tidemill(f"ctl advance dds.orders loaded_to={AT} --json").data
    value = {"entity": "dds.orders", "parameter": "loaded_to", "value": "2026-07-02T00:00:00+00:00", "moved": True}
    assert told == {"dry_run": False, "values": [value]}


# What a deploy would start


def test_plan(tidemill: Tidemill, session: Session) -> None:
    orders(1)
    registration.declared[TASK] = kit.definition(TASK, priority=5)
    registration.declared["shop.marts.mart_c"] = kit.definition("shop.marts.mart_c", Delta("x", "y", "1d"))
    del registration.declared["shop.marts.mart_b"]
    said = tidemill("reactive plan")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert any(line.split() == [TASK, "changed", "priority", "at", "once"] for line in lines)
    assert any(line.split() == ["shop.marts.mart_c", "new", "-", "no"] for line in lines)
    assert any(line.split() == ["shop.marts.mart_b", "removed", "-", "no"] for line in lines)
    assert "1 would start at once. Nothing was changed." in lines
    assert any(line.startswith("no-value: x.y has no value") for line in lines)
    told = tidemill("reactive plan --json").data
    assert (told["new"], told["changed"], told["removed"]) == (["shop.marts.mart_c"], [TASK], ["shop.marts.mart_b"])
    assert (told["starting"], told["differences"], told["unchecked"]) == ([TASK], {TASK: ["priority"]}, None)
    assert [each["kind"] for each in told["findings"]] == ["no-value"]
    names = [each["name"] for each in tidemill("reactive list --json").data["tasks"]]
    assert names == [TASK, "shop.marts.mart_b"]


def test_plan_of_a_module_that_cannot_be_imported(env: dict[str, str]) -> None:
    said = script("reactive plan", env | {"TIDEMILL_MODULES": "no_such_module"})
    assert (said.code, one_sentence(said, "no_such_module", "cannot be imported")) == (1, True)


def test_plan_as_the_console_script(env: dict[str, str]) -> None:
    told = json.loads(script("reactive plan --json", env | {"TIDEMILL_MODULES": ""}).out)
    assert (told["tasks"], told["starting"]) == (0, [])


# What was missed, and the service


def test_missed_windows_are_listed_and_counted(tidemill: Tidemill, session: Session) -> None:
    assert tidemill("reactive list --missed").out == "no window was missed\n"
    assert "missed" not in tidemill("status").out
    missed_window(session)
    missed_window(session, "shop.marts.mart_b")
    lines = tidemill("reactive list --missed").out.splitlines()
    assert lines[0].split() == ["task", "opened", "closed", "was", "open", "run", "reason"]
    assert lines[1].startswith("shop.marts.mart_b  2026-07-01 00:00:00")
    assert lines[1].endswith("7    the trigger did not hold any more")
    told = tidemill("reactive list --missed --json").data["missed"]
    assert [each["task"] for each in told] == ["shop.marts.mart_b", TASK]
    assert told[0]["opened_at"] == day(1).isoformat()
    assert "--limit shows more" in tidemill("reactive list --missed --limit 1").err
    assert "! 2 windows missed in 5 minutes: tidemill reactive list --missed" in tidemill("status").out
    assert tidemill("status --json").data["reactive"]["missed"] == 2
    said = tidemill("reactive list --missed --pool marts")
    assert (said.code, one_sentence(said, "leave out --pool and --state")) == (2, True)


def findings(tidemill: Tidemill, check: str) -> tuple[str, str]:
    found = [each for each in tidemill("doctor --json").data["findings"] if each["check"] == check]
    assert all(each["advice"] for each in found if each["level"] != "ok")
    [one] = found
    return one["level"], one["detail"]


def test_the_doctor_tells_of_missed_windows(tidemill: Tidemill, session: Session) -> None:
    assert findings(tidemill, "missed windows") == ("ok", "none in the last day")
    missed_window(session)
    wanted = f"1 in the last day, the last: {TASK} (the trigger did not hold any more)"
    assert findings(tidemill, "missed windows") == ("warn", wanted)
    session.execute(sa.update(MissedWindow).values(closed_at=sa.func.now() - timedelta(days=2)))
    session.commit()
    assert findings(tidemill, "missed windows")[0] == "ok"


def test_the_doctor_looks_at_the_service(tidemill: Tidemill, session: Session) -> None:
    def found(**values: object) -> tuple[str, str]:
        if values:
            session.execute(sa.update(ReactiveCursor).values(**values))
            session.commit()
        return findings(tidemill, "reactive service")

    now = sa.func.clock_timestamp()
    assert found() == ("ok", "none has ever followed the changes: tasks are found by polling")
    Service().run_once()
    assert found() == ("ok", "it follows the changes, in term 1; it has never compared, with no difference")
    level, detail = found(compared_at=now - timedelta(minutes=10))
    assert (level, detail.startswith("it follows the changes, but it compared 10min ")) == ("warn", True)
    level, detail = found(moved_at=now - timedelta(minutes=2))
    assert (level, detail.startswith("its cursor stands still since 2min")) == ("warn", True)
    level, detail = found(moved_at=now, compared_at=now, differences=3)
    assert level == "fail"
    assert "differed from an evaluation of everything in 3 tasks" in detail
    assert tidemill("doctor").code == 1


# What is kept


def test_why_and_status_tell_what_is_kept(tidemill: Tidemill) -> None:
    register(
        kit.definition(TASK, priority=10),
        kit.definition("shop.marts.load", Delta("src.orders", "loaded_to", "1d"), produces=(ORDERS,), pool="loads"),
        kit.definition("shop.marts.mart_b", Delta("a", "b", "1d")),
    )
    pools.configure("marts", max_parallel=2)
    service = Service()
    service.run_once()
    ctl.advance("src.orders", loaded_to=day(1))
    ctl.advance("a", b=day(1))
    while service.run_once().started:
        pass
    said = tidemill("reactive why mart_a").out
    assert "kept      a slot is kept for it in pool marts until 20" in said
    run = tidemill("reactive why shop.marts.load --json").data["run"]["id"]
    assert f"while run {run} of shop.marts.load waits for its turn" in said
    assert "held for" not in tidemill("reactive why mart_b").out
    assert "2 at once, 1 kept" in tidemill("status").out
    pools.configure("marts", max_parallel=1)
    said = tidemill("reactive why mart_b").out
    assert f"is held for {TASK} until 20" in said
    assert f"a slot of pool marts is kept for it, while run {run} of shop.marts.load waits for its turn" in said
