"""`tidemill actor` on a real database, and what status and doctor say of processes."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import Audit
from processes import outside, show, start
from processes.model import DECISION, PROCESS
from tests.kit.cli import Tidemill, live_worker
from tests.kit.process_kiosk import declare, kiosk_order, kiosk_value, work


@pytest.fixture(autouse=True)
def _declared(session: Session, broker_url: str) -> None:
    declare()


def audits(session: Session) -> list[tuple[str, str, str | None]]:
    session.rollback()
    rows = session.execute(sa.select(Audit.action, Audit.subject, Audit.reason).order_by(Audit.id))
    return [(row.action, row.subject, row.reason) for row in rows]


def test_actor_set_says_what_was_and_what_is(tidemill: Tidemill, session: Session) -> None:
    # P6
    said = tidemill("actor set kiosk_pay work_timeout=5min retry=3 max_parallel=2 --reason", "it is slow")
    assert said.out.splitlines() == [
        "kiosk_pay: work_timeout is 5min, was 1min",
        "kiosk_pay: retry is 3 attempts, 1s apart, ×2 each time, up to 5min, was 1 attempt",
        "kiosk_pay: max_parallel is 2, was none",
    ]
    assert audits(session) == [("actor.set", "kiosk_pay", "it is slow")]
    lines = tidemill("actor show kiosk_pay").out.splitlines()
    settings = {line.split()[0]: line.split("  ", 1)[1].split() for line in lines[lines.index("Settings") + 2 :]}
    assert settings["work_timeout"] == ["5min", "1min", "(changed", "by", "an", "operator)"]
    assert settings["accept_first"] == ["true", "the", "same"]
    assert settings["fail_types"] == ["Declined", "the", "same"]
    assert "process_timeout" not in settings
    told = tidemill("actor show actor.kiosk_pay --json").data
    assert told["changed"] == ["work_timeout", "retry", "max_parallel"]
    assert (told["settings"]["work_timeout"], told["declared"]["work_timeout"]) == (300.0, 60.0)
    assert "process_timeout" in tidemill("actor show kiosk_order").out


def test_block_and_unblock(tidemill: Tidemill, session: Session) -> None:
    assert (
        tidemill("actor block kiosk_pay --reason x").out == "kiosk_pay is blocked: tidemill actor unblock kiosk_pay\n"
    )
    assert "was already blocked" in tidemill("actor block kiosk_pay").out
    process_id = start(kiosk_order, "o-1")
    work()
    assert show(process_id).tasks[1].attempts == 0
    assert "BLOCKED" in tidemill("actor list").out
    assert tidemill("actor unblock kiosk_pay").out == "kiosk_pay is open\n"
    assert tidemill("actor unblock kiosk_pay").out == "kiosk_pay was not blocked\n"
    work()
    assert show(process_id).state == "FINISHED"
    assert {each[0] for each in audits(session)} == {"actor.set"}


def test_actor_list_says_what_is_wrong(tidemill: Tidemill, session: Session) -> None:
    tidemill("actor set kiosk_mail rate_limit=6/min max_parallel=2")
    start(kiosk_value, 1, True)
    start(kiosk_order, "o-1")
    work(kiosk_value)
    session.execute(sa.update(DECISION).values(due_at=sa.func.now() - sa.text("interval '5 minutes'")))
    session.commit()
    said = tidemill("actor list").out
    words = "actor kind ready later in work broken oldest timeouts slots limits"
    assert said.splitlines()[0].split() == words.split()
    assert "6/min, 2 at once" in said
    assert "! kiosk_print: 1 are ready and nobody polls for them" in said
    outside.poll("kiosk_print", worker="p")
    with live_worker("actor.kiosk_order", slots=3):
        said = tidemill("actor list").out
    assert "nobody polls" not in said
    [line] = [line for line in said.splitlines() if line.startswith("kiosk_print")]
    assert line.split() == ["kiosk_print", "outside", "0", "0", "1", "-", "-", "-", "polled", "-"]


# Other commands


def test_status_and_doctor_tell_of_processes(tidemill: Tidemill, session: Session) -> None:
    told = tidemill("doctor --json").data["findings"]
    levels = {each["check"]: each["level"] for each in told}
    assert [levels[name] for name in ("broken processes", "process clocks", "actors")] == ["ok"] * 3
    start(kiosk_order, "x", "many")
    start(kiosk_order, "o-1")
    start(kiosk_value, 1, True)
    work()
    start(kiosk_value, 2)
    session.execute(sa.update(PROCESS).values(registered_at=sa.func.now() - sa.text("interval '1 hour'")))
    session.execute(sa.update(DECISION).values(due_at=sa.func.now() - sa.text("interval '1 hour'")))
    session.commit()
    figures = tidemill("status --json").data["processes"]
    counted = {name: figures[name] for name in ("registered", "active", "broken", "finished", "broken_tasks", "ready")}
    assert counted == {"registered": 1, "active": 1, "broken": 1, "finished": 1, "broken_tasks": 1, "ready": 1}
    said = tidemill("status").out
    assert "! 1 are broken, with 1 broken tasks: tidemill process search --state broken" in said
    assert "! 1 registered and never begun, the first for 1h" in said
    assert "kiosk_print: 1 tasks are ready and no live worker" not in said
    found = {each["check"]: each for each in tidemill("doctor --json").data["findings"] if each["level"] != "ok"}
    assert "the latest: task 2 of process 1, kiosk_pay: TypeError" in found["broken processes"]["detail"]
    assert "kiosk_print is done outside: 1 of its tasks are ready, and nobody polls" in found["actors"]["detail"]
    assert "workers" not in found or "kiosk_print" not in found["workers"]["detail"]


def test_doctor_finds_what_nobody_looked_after(
    tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # R5
    start(kiosk_value, 1)
    session.execute(sa.update(PROCESS).values(registered_at=sa.func.now() - sa.text("interval '1 hour'")))
    session.commit()
    monkeypatch.setattr("app.health.processes._settled", lambda _allowed: sa.true())
    [finding] = [each for each in tidemill("doctor --json").data["findings"] if each["check"] == "process clocks"]
    assert (finding["level"], "1 processes were registered and never begun" in finding["detail"]) == ("warn", True)
