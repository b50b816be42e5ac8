"""`tidemill reactive` on a real database, and what other commands say of reactive tasks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import timedelta

import click
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.cli.root import tidemill as root
from app.limits import Queue
from app.settings import settings
from tests.kit import reactive_cli as kit
from tests.kit.cli import Tidemill, live_worker, one_sentence, script
from tests.kit.reactive_cli import ORDERS, Worker, day, evaluate, orders, register, seen, states
from triggers.model import ReactiveTask
from triggers.trigger import Delay, Delta

READING = ["list", "why mart_a", "runs mart_a", "pool marts"]
CHANGING = ["run", "rewind --yes --to 2h", "forget --yes", "cancel --yes", "pause", "resume", "release", "remove --yes"]
TASK = "shop.marts.mart_a"


@pytest.fixture(autouse=True)
def _tasks(session: Session, broker_url: str) -> Iterator[None]:
    register(kit.definition(TASK), kit.definition("shop.marts.mart_b", pool="other"))
    orders(1)
    yield
    kit.unregister()


@pytest.fixture
def worker() -> Worker:
    return Worker()


def done(worker: Worker, number: int) -> None:
    orders(number)
    evaluate()
    assert worker.serve() == 1


# Reading


@pytest.mark.parametrize("words", READING)
def test_reading_speaks_to_people_and_programs(tidemill: Tidemill, worker: Worker, words: str) -> None:
    for number in (3, 5):
        said = tidemill(f"reactive {words}")
        assert (said.code, said.err) == (0, "")
        assert said.out
        assert "\x1b" not in said.out
        assert isinstance(tidemill(f"reactive {words} --json").data, dict)
        done(worker, number)


def test_why_shows_the_tree_then_the_state_and_what_holds_it(tidemill: Tidemill) -> None:
    evaluate()
    lines = tidemill("reactive why mart_a").out.splitlines()
    assert lines[0] == TASK
    assert lines[1].startswith("✓ dds.orders.loaded_to ")
    assert lines[3] == "state     fired: its run waits"
    assert lines[4].startswith("held by   run 1 waits in pool marts: 0 before it, 0 running")
    assert lines[5].strip() == "no live worker takes reactive.marts: celery -A app worker -Q reactive.marts"
    assert lines[6].startswith("last run  1 is waiting, made 2")
    told = tidemill("reactive why mart_a --json").data
    assert (told["task"], told["state"], told["tree"]["current"]) == (TASK, "waiting", day(1).isoformat())
    assert (told["run"]["id"], len(told["holds"])) == (1, 2)


def test_why_of_a_past_evaluation(tidemill: Tidemill) -> None:
    said = tidemill("reactive why mart_a --at now")
    assert said.code == 1
    assert one_sentence(said, "no evaluation of", "none is kept")
    evaluate()
    said = tidemill("reactive why mart_a --at now")
    assert (said.code, "by polling" in said.out) == (0, True)
    assert tidemill("reactive why mart_a --json --at now").data["cause"] == "polling"


@pytest.mark.parametrize(("color", "expected"), [(True, True), (False, False)])
def test_colours_are_for_terminals(color: bool, expected: bool, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001
    with click.Context(root, color=color):
        root.main(["reactive", "why", "mart_a"], standalone_mode=False, color=color)
    assert ("\x1b[32m✓" in capsys.readouterr().out) is expected


def test_no_color_is_heeded(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    root.main(["reactive", "why", "mart_a"], standalone_mode=False, color=True)
    assert "\x1b" not in capsys.readouterr().out


def test_as_the_console_script(env: dict[str, str]) -> None:
    evaluate()
    said = script("reactive list --json --state waiting", env)
    assert (said.code, [each["name"] for each in json.loads(said.out)["tasks"]]) == (0, [TASK, "shop.marts.mart_b"])
    assert script("reactive why mart_a", env | {"LC_ALL": "C"}).code == 0


def test_list_filters(tidemill: Tidemill) -> None:
    def found(words: str) -> list[str]:
        return [each["name"][-1] for each in tidemill(f"reactive list --json {words}").data["tasks"]]

    assert found("") == ["a", "b"]
    assert found("--pool other") == ["b"]
    assert found("--state paused") == []
    assert "--limit shows more" in tidemill("reactive list --limit 1").err
    assert tidemill("reactive list --state paused").out == "there is no such task\n"
    assert one_sentence(tidemill("reactive list --pool othr"), "no pool 'othr': did you mean other?")


# What is no task, no time and no window


@pytest.mark.parametrize("words", ["why", "runs", *CHANGING])
def test_an_unknown_task_is_told_with_the_nearest(tidemill: Tidemill, words: str) -> None:
    name, *options = words.split()
    said = tidemill(f"reactive {name}", "mart_aa", *options)
    assert (said.code, said.out) == (1, "")
    assert one_sentence(said, "no reactive task 'mart_aa': did you mean shop.marts.mart_a?")
    said = tidemill(f"reactive {name}", "x" * 50_000, *options)
    assert said.code == 1
    assert len(said.err) < 300


def test_what_may_be_several_is_listed(tidemill: Tidemill) -> None:
    register(kit.definition(TASK), kit.definition("shop.old.mart_a"))
    assert one_sentence(tidemill("reactive why mart_a"), f"may be one of {TASK}, shop.old.mart_a: write more")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("why mart_a --at 2026-07-01", ("has no time zone", "2026-07-01T00:00:00Z")),
        ("why mart_a --at soon", ("'soon' is neither a time",)),
        ("why mart_a --at 0001-01-01T00:00:00Z", ("outside of the years",)),
        ("why", ("Missing argument 'TASK'",)),
        ("rewind mart_a --yes", ("Missing option '--to'",)),
        ("rewind mart_a --yes --to 2026-07-01T00:00", ("has no time zone",)),
        ("rewind mart_a --yes --to 9999999w", ("too long ago",)),
        ("rewind mart_a --to 2026-06-01T00:00:00Z", ("Nobody can be asked here: say --yes",)),
        ("forget mart_a", ("Nobody can be asked here: say --yes",)),
        ("run mart_a --from 2h", ("give both --from and --to",)),
        ("run mart_a --to 2h", ("give both --from and --to",)),
        ("run mart_a --from 1h --to 2h", ("is empty: --to must be later",)),
        ("run mart_a --from 2026-07-02T00:00:00Z --to 2026-07-01T00:00:00Z", ("is empty",)),
        ("list --state lost", ("'lost' is not one of",)),
        ("list --limit 0", ("0 is not in the range",)),
        ("pool marts --parallel 0", ("0 is not in the range",)),
        ("pool marts --rate fast", ("'fast' is not a rate",)),
    ],
)
def test_wrong_usage_is_one_sentence(tidemill: Tidemill, worker: Worker, words: str, parts: tuple[str, ...]) -> None:
    done(worker, 1)
    said = tidemill(f"reactive {words}")
    assert said.code == 2
    assert one_sentence(said, *parts)


def test_a_time_ahead_is_no_past(tidemill: Tidemill) -> None:
    assert one_sentence(tidemill("reactive rewind mart_a --yes --to", "in 2h"), "lies ahead", "2h ago")


# Changing


def test_run_says_where_it_waits_and_who_is_missing(tidemill: Tidemill, session: Session) -> None:
    said = tidemill("reactive run mart_a")
    assert said.out == f"run 1 of {TASK} waits for a worker: tidemill reactive why {TASK}\n"
    assert said.err == (
        "Note: no live worker takes reactive.marts; start one: celery -A app worker -Q reactive.marts\n"
    )
    assert one_sentence(tidemill("reactive run mart_a"), "has a run that is waiting (run 1)")
    with live_worker("reactive.marts"):
        assert tidemill("reactive cancel mart_a --yes").code == 0
        assert tidemill("queue pause reactive.marts").err == ""
        assert "the pool is paused: tidemill queue resume reactive.marts" in tidemill("reactive why mart_a").out


def test_a_backfill(tidemill: Tidemill, worker: Worker, session: Session) -> None:
    done(worker, 10)
    window = "--from 2026-06-01T00:00:00Z --to 2026-06-02T03:00:00+03:00"
    said = tidemill(f"reactive run mart_a {window}")
    assert said.code == 0
    assert "and stays so" not in said.err
    worker.serve()
    assert worker.runs[-1].window(*ORDERS) == (day(-29), day(-28))
    assert seen(session, TASK) == day(10)
    assert "2026-06-01T00:00:00Z to 2026-06-02T00:00:00Z" in tidemill("reactive runs mart_a").out
    said = tidemill(f"reactive run mart_a --record {window}")
    assert "was seen up to 2026-07-10T00:00:00Z, and stays so: --record takes nothing back" in said.err
    worker.serve()
    assert seen(session, TASK) == day(10)


def test_a_removed_task_has_no_run_by_hand(tidemill: Tidemill) -> None:
    register(kit.definition("shop.marts.mart_c"))
    said = tidemill("reactive run mart_a --from 2h --to 1h")
    assert (said.code, one_sentence(said, "is not declared any more")) == (1, True)
    assert "removed: no module declares it any more" in tidemill("reactive why mart_a").out


def test_a_task_whose_module_is_gone_is_removed(
    tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == TASK).values(module="shop.gone"))
    session.commit()
    evaluate()
    said = tidemill("reactive remove mart_a --yes")
    assert said.out.splitlines() == [
        f"{TASK} of module shop.gone is waiting",
        f"{TASK} is removed; a service that still declares it brings it back when it starts",
    ]
    assert states(session, TASK) == ["cancelled"]
    assert TASK not in tidemill("reactive list").out
    assert tidemill("reactive remove mart_a --yes").out == f"{TASK} was already removed\n"
    register(kit.definition(TASK), kit.definition("shop.marts.mart_b", pool="other"))
    assert TASK in tidemill("reactive list").out
    module = session.scalars(sa.select(ReactiveTask.module).where(ReactiveTask.name == TASK)).one()
    monkeypatch.setenv("TIDEMILL_MODULES", module)
    settings.cache_clear()
    assert one_sentence(tidemill("reactive remove mart_a --yes"), "is one of TIDEMILL_MODULES: take")
    assert TASK in tidemill("reactive list").out


def test_rewind_shows_what_it_takes_back(tidemill: Tidemill, worker: Worker, session: Session) -> None:
    done(worker, 10)
    said = tidemill("reactive rewind mart_a --yes --to 2026-07-05T00:00:00Z")
    assert said.code == 0
    assert said.out.splitlines() == [
        "parameter             last seen             would be",
        "dds.orders.loaded_to  2026-07-10T00:00:00Z  2026-07-05T00:00:00Z",
        "The task would start at once.",
        "dds.orders.loaded_to is seen up to 2026-07-05T00:00:00Z (it was 2026-07-10T00:00:00Z)",
        f"{TASK} is waiting now",
    ]
    said = tidemill("reactive rewind mart_a --yes --to 2026-07-05T00:00:00Z")
    assert said.out == f"{TASK} has seen nothing later than 2026-07-05T00:00:00Z: nothing was changed\n"


@pytest.mark.parametrize(
    "words", ["rewind mart_a --to 2026-07-05T00:00:00Z", "forget mart_a", "cancel mart_b", "remove mart_b"]
)
def test_no_is_an_answer(
    tidemill: Tidemill, worker: Worker, session: Session, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    done(worker, 10)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda _question: False)
    said = tidemill(f"reactive {words}")
    assert (said.code, said.out.splitlines()[-1]) == (1, "Nothing was changed.")
    assert (seen(session, TASK), states(session, "shop.marts.mart_b")) == (day(10), ["waiting"])


def test_forget(tidemill: Tidemill, worker: Worker, session: Session) -> None:
    assert tidemill("reactive forget mart_a --yes").out == f"{TASK} has seen nothing: nothing was changed\n"
    done(worker, 10)
    tidemill("reactive pause mart_a")
    said = tidemill("reactive forget mart_a --yes")
    assert "The task would not start: it is paused." in said.out
    assert "dds.orders.loaded_to is as never seen (it was 2026-07-10T00:00:00Z)" in said.out
    assert seen(session, TASK) is None


def test_cancel(tidemill: Tidemill, session: Session) -> None:
    assert one_sentence(tidemill("reactive cancel mart_a --yes"), "nothing to cancel")
    evaluate()
    said = tidemill("reactive cancel mart_a --yes --reason", "no disk")
    assert said.out.splitlines()[1:] == [
        f"run 1 of {TASK} is cancelled",
        f"it starts again when its input moves, or after: tidemill reactive release {TASK}",
    ]
    assert states(session, TASK) == ["cancelled"]
    assert "cancelled: no disk" in tidemill("reactive list --state quarantined").out
    assert tidemill("reactive release mart_a").out == f"{TASK} is released: it is waiting now\n"
    assert tidemill("reactive release mart_a").out == f"{TASK} was not quarantined\n"
    said = tidemill("reactive cancel mart_a --yes --reason", "x" * 20_000)
    assert (said.code, one_sentence(said, "in 1 to 1000 printable characters")) == (1, True)


def test_pause_and_resume(tidemill: Tidemill, session: Session) -> None:
    evaluate()
    assert tidemill("reactive pause mart_a").out == f"{TASK} is paused: tidemill reactive resume {TASK}\n"
    assert "was already paused" in tidemill("reactive pause mart_a").out
    assert states(session, TASK) == ["cancelled"]
    assert tidemill("reactive resume mart_a").out == f"{TASK} is not paused any more: it is waiting now\n"
    assert tidemill("reactive resume mart_a").out == f"{TASK} was not paused\n"


def test_pool(tidemill: Tidemill, session: Session) -> None:
    assert "limits        none\n" in tidemill("reactive pool marts").out
    said = tidemill("reactive pool marts --parallel 4 --rate 6/min")
    assert "limits        4 at once, 6/min starts\n" in said.out
    assert tidemill("reactive pool marts --parallel none --json").data["rate_limit"] == "6/min"
    row = session.execute(sa.select(Queue).where(Queue.name == "reactive.marts")).scalar_one()
    assert (row.max_parallel, row.rate) == (None, 0.1)
    assert one_sentence(tidemill("reactive pool mart --rate none"), "no pool 'mart': did you mean marts?")


# Other commands


def test_status_counts_reactive_tasks(tidemill: Tidemill, session: Session) -> None:
    evaluate()
    tidemill("reactive cancel mart_a --yes")
    told = tidemill("status --json").data
    assert told["reactive"] == {
        "tasks": 2,
        "running": 0,
        "waiting": 1,
        "paused": 0,
        "quarantined": 1,
        "done": 0,
        "failed": 0,
        "missed": 0,
    }
    said = tidemill("status").out
    assert "! reactive.other: 1 runs are ready and no live worker takes them" in said
    assert "2 declared, 0 running, 1 waiting; 0 runs done and 0 failed" in said
    assert "! 1 quarantined: tidemill reactive list --state quarantined" in said


def test_queue_knows_the_queues_of_pools(tidemill: Tidemill) -> None:
    assert tidemill("queue limit reactive.marts --parallel 2").err == ""
    assert "yet" in tidemill("queue limit reactive.nobody --parallel 2").err


def test_doctor_looks_at_triggers_and_quarantine(tidemill: Tidemill, session: Session) -> None:
    def found() -> dict[str, tuple[str, str]]:
        findings = tidemill("doctor --json").data["findings"]
        assert all(each["advice"] for each in findings if each["level"] != "ok")
        return {each["check"]: (each["level"], each["detail"]) for each in findings}

    assert found()["reactive tasks"] == ("ok", "2 declared, none is quarantined")
    assert found()["triggers"][0] == "ok"
    register(kit.definition(TASK, Delay("nobody", "makes_it", "1h"), min_interval=timedelta(hours=1)))
    assert found()["triggers"][1].startswith("no-value: nobody.makes_it has no value and no task produces it")
    register(kit.definition(TASK, Delay(*ORDERS, "1h"), min_interval=timedelta(0)))
    assert found()["triggers"][1].startswith("free-running: shop.marts.mart_a runs again as soon as it ends")
    register(kit.definition(TASK, produces=(ORDERS,)))
    assert found()["triggers"] == (
        "warn",
        f"cycle: {TASK} → {TASK}: what these tasks produce starts them again",
    )
    register(kit.definition(TASK, Delta("a", "b", "1d"), produces=(("a", "b"),)))
    assert "fail" in {
        each["level"] for each in tidemill("doctor --json").data["findings"] if each["check"] == "triggers"
    }
    session.execute(sa.update(ReactiveTask).values(quarantined_at=sa.func.now(), quarantine_reason="failed"))
    session.commit()
    assert found()["reactive tasks"] == ("warn", f"1 of 1 quarantined, the last: {TASK} (failed)")
