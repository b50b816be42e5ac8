"""An operation by the command line, with workers that die in the middle of it (R9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.audit import Audit
from app.passes import CONTROL
from processes import preferences
from recovery import operations
from tests.kit import operation_rows as o
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tests.kit.cli import SCRIPT, Said, Tidemill, one_sentence, script
from tests.kit.process import Processes
from tests.kit.waiting import wait_until

SECONDS = 300
COUNT = 150


@pytest.fixture
def env(env: dict[str, str], engine: Engine) -> dict[str, str]:
    w.create(engine)
    preferences.synchronize()
    return env | {"TIDEMILL_MODULES": w.MODULES, "TIDEMILL_LEASE": "1s", "TIDEMILL_GRACE": "0s"}


def test_it_goes_on_when_the_worker_is_killed(
    env: dict[str, str], processes: Processes, session: Session, tmp_path: Path
) -> None:
    """Beat asks, a worker of the queue `control` works it off; it is killed, and another one goes on."""
    # No call is made again because it was late.
    preferences.configure("toil", {"work_timeout": "10min"})
    o.broken(session, COUNT)
    processes.beat(env, "-s", str(tmp_path / "beat"))
    dying = processes.celery_worker(env, 1, [CONTROL], name="dying")
    said = script("recover operation start restart-task --type crowd --rate 10/s --reason drill --yes", env)
    assert said.code == 0, said.err
    operation_id = int(said.out.splitlines()[-1])

    def done() -> int:
        return operations.show(operation_id).done

    wait_until(lambda: done() >= 10, SECONDS, dying.log)
    dying.kill()
    left = done()
    assert left < COUNT
    words = ["recover", "operation", "resume", str(operation_id), "--rate", "40/s", "--wait"]
    waited = processes.start([str(SCRIPT), *words], env, "waits")
    processes.celery_worker(env, 1, [CONTROL], name="second")
    worker = processes.celery_worker(env, 2, ["actor.toil"], name="toils")
    assert waited.wait(SECONDS) == 0, waited.log
    assert f"{COUNT} done, 0 failed, 0 skipped" in waited.log
    wait_until(lambda: r.unfinished(session) == 0, SECONDS, worker.log)
    assert o.epochs(session) == []
    assert len(w.called(session, "toil")) == COUNT
    assert r.check(session) == {}
    shown = json.loads(script(f"recover operation show {operation_id} --json", env).out)
    assert (shown["state"], shown["done"], shown["reason"]) == ("DONE", COUNT, "drill")


# Without any service


@pytest.fixture
def there(session: Session, engine: Engine, broker_url: str) -> list[int]:
    preferences.synchronize()
    return o.broken(session, 12)


def said(tidemill: Tidemill, words: str) -> Said:
    found = tidemill(f"recover operation {words}")
    assert (found.code, found.err) == (0, ""), found
    return found


def test_a_dry_run_and_a_question(tidemill: Tidemill, there: list[int], session: Session) -> None:
    shown = said(tidemill, "start abort --type crowd --dry-run").out
    assert shown.splitlines()[0] == "12 processes"
    assert f"process {there[0]}    crowd BROKEN, c1, task 2, toil: Bad: on purpose" in shown
    assert "… and 2 more" in shown
    assert "Nothing was changed." in shown
    found = said(tidemill, "start abort --type crowd --dry-run --json").data
    assert (found["total"], found["sample"][0]["process_id"]) == (12, there[0])
    assert one_sentence(tidemill("recover operation start abort --all --json"), "give --dry-run as well")
    refused = tidemill("recover operation start abort --type crowd")
    assert refused.code == 2
    assert one_sentence(refused, "Abort 12 processes? Nobody can be asked here: say --yes")
    assert said(tidemill, "start abort --type crowd --state finished").out == "Nothing matches.\n"
    assert operations.overview() == []
    for words in ("start abort", f"start abort --all --process {there[0]}", "start redrive", "start rerun-jobs"):
        assert one_sentence(tidemill(f"recover operation {words}"), "Say which"), words
    assert one_sentence(tidemill("recover operation start abort --process 999"), "there is no process 999")
    assert one_sentence(tidemill("recover operation show 9"), "there is no operation 9")


def test_steered_and_tried_again(tidemill: Tidemill, there: list[int], session: Session) -> None:
    o.stuck(session, there[:2])
    said(tidemill, "start restart-task --all --rate none --priority 2 --limit 10 --yes")
    assert "RUNNING" in said(tidemill, "list --live").out
    said(tidemill, "pause 1 --reason lunch")
    assert o.work_off()[0].done == 0
    assert "goes on, rate none" in said(tidemill, "resume 1 --rate none").out
    o.work_off()
    shown = said(tidemill, "show 1 --failed").out
    assert "operation 1  restart-task  DONE" in shown
    assert f"process {there[0]}, task 2  RaiseException: process {there[0]} is stuck" in shown
    told: Any = said(tidemill, "show 1 --json").data
    assert (told["done"], told["failed"], len(told["items"]), told["percent"]) == (8, 2, 10, 100.0)
    o.free(session)
    assert "operation 2 tries 2 again" in said(tidemill, "retry 1 --rate none --yes").out
    said(tidemill, "cancel 2 --yes")
    assert [each["state"] for each in said(tidemill, "list --json").data["operations"]] == ["CANCELLED", "DONE"]
    audits = [row.action for row in session.execute(sa.select(Audit.action).order_by(Audit.id))]
    assert audits == [f"operation.{word}" for word in ("start", "pause", "resume", "retry", "cancel")]
