"""`tidemill simulate` over a recorded history: the registered triggers, and such as are tried."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.cli import simulate
from app.registry import registry
from tests.kit.cli import Said, Tidemill, one_sentence
from triggers import pools, sync
from triggers.model import RUN, Ctl, CtlChange, CtlSeen, ReactiveTask, RunKind, RunState
from triggers.registration import declared
from triggers.simulation import draft

T = datetime(2026, 7, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TIMES = "--since 2026-07-01T00:00:00Z --until 2026-07-02T00:00:00Z"
NAMES = ("dds.orders", "loaded_to")

FILE = """
from tidemill import Run, {function}, new_day, pool, reactive

pool("marts", max_parallel={parallel})

@reactive({trigger}, pool="marts", produces=[("mart.orders", "built_to")])
def build(run: Run) -> None:
    raise AssertionError("a simulation runs nothing")

@reactive(new_day("mart.orders", "built_to"), pool="marts")
def report(run: Run) -> None:
    raise AssertionError("a simulation runs nothing")
"""


def module(folder: Path, trigger: str, parallel: int = 2) -> Path:
    path = folder / "marts.py"
    folder.mkdir()
    path.write_text(FILE.format(function=trigger.partition("(")[0], trigger=trigger, parallel=parallel))
    return path


def record(session: Session, moves: Iterable[tuple[datetime, tuple[str, str], datetime]]) -> None:
    """As if the parameters had moved at those times."""
    last: dict[tuple[str, str], datetime] = {}
    rows = []
    for at, name, value in moves:
        rows.append(
            {"entity": name[0], "parameter": name[1], "value": value, "previous": last.get(name), "changed_at": at}
        )
        last[name] = value
    session.execute(sa.insert(Ctl), [{"entity": e, "parameter": p, "value": v} for (e, p), v in last.items()])
    session.execute(sa.delete(CtlChange))
    session.execute(sa.insert(CtlChange), rows)
    session.commit()


@pytest.fixture(autouse=True)
def _warehouse(session: Session, tmp_path: Path) -> None:
    """A task that builds at every two hours of orders; orders have come every hour of July 1st, and one before."""
    found = draft.read(module(tmp_path / "registered", 'grown("dds.orders", "loaded_to", by="2h")'))
    sync.write(session, found.tasks)
    session.execute(sa.insert(CtlSeen).values(task="marts.build", entity=NAMES[0], parameter=NAMES[1], value=T - HOUR))
    record(session, [(T + hour * HOUR, NAMES, T + hour * HOUR) for hour in range(-1, 24)])


def ran(session: Session, seen: datetime | None, at: datetime, seconds: float = 600.0) -> None:
    run = {"task": "marts.build", "queue": "reactive.marts", "priority": 0, "generation": 0, "state": RunState.DONE}
    times = {"created_at": at, "started_at": at, "ended_at": at + timedelta(seconds=seconds)}
    checked = [[*NAMES, seen and seen.isoformat(), at.isoformat()]]
    session.execute(sa.insert(RUN).values(kind=RunKind.REGULAR, checked=checked, **run, **times))
    session.commit()


def fired(launches: list[dict[str, Any]], task: str = "marts.build") -> list[int]:
    """At which hours of the day."""
    return [(datetime.fromisoformat(each["fired_at"]) - T) // HOUR for each in launches if each["task"] == task]


def simulated(tidemill: Tidemill, *words: str) -> Any:
    said = tidemill(f"simulate {TIMES} --json", *words)
    assert (said.code, said.err) == (0, "")
    return said.data


# Replaying


def test_the_registered_triggers_are_replayed(tidemill: Tidemill) -> None:
    found = simulated(tidemill)
    assert fired(found["launches"]) == list(range(1, 24, 2))
    assert found["changes"] == 24
    assert found["launches"][0]["window"] == [
        {
            "entity": "dds.orders",
            "parameter": "loaded_to",
            "last_seen": "2026-06-30T23:00:00+00:00",
            "current": "2026-07-01T01:00:00+00:00",
        }
    ]
    assert simulated(tidemill)["digest"] == found["digest"]
    # Nothing has produced what it waits for.
    assert fired(found["launches"], "marts.report") == []
    assert found["tasks"] == [
        {"task": "marts.build", "really_ran": 0, "launches": 12, "tried": None},
        {"task": "marts.report", "really_ran": 0, "launches": 0, "tried": None},
    ]


def test_it_changes_nothing(tidemill: Tidemill, session: Session) -> None:
    def stored() -> list[Any]:
        tables = (Ctl, CtlChange, CtlSeen, ReactiveTask, RUN)
        return [session.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in tables]

    before = stored()
    simulated(tidemill, "--deliver")
    assert stored() == before


def test_deliver_lets_runs_advance_what_they_produce(tidemill: Tidemill) -> None:
    assert fired(simulated(tidemill, "--deliver")["launches"], "marts.report") == [1]


def test_what_was_seen_and_how_long_runs_take_is_told_by_real_runs(tidemill: Tidemill, session: Session) -> None:
    ran(session, T - 2 * HOUR, T)
    ran(session, T, T + 2 * HOUR)
    found = simulated(tidemill, "--task", "build")
    assert fired(found["launches"])[:3] == [0, 2, 4]
    first = found["launches"][0]
    assert datetime.fromisoformat(first["ended_at"]) - datetime.fromisoformat(first["started_at"]) == HOUR / 6
    assert found["tasks"] == [{"task": "marts.build", "really_ran": 2, "launches": 12, "tried": None}]


def test_a_task_that_had_not_run_by_then_had_seen_nothing(tidemill: Tidemill, session: Session) -> None:
    ran(session, None, T + HOUR)
    assert fired(simulated(tidemill)["launches"])[:3] == [0, 2, 4]


def test_a_table_for_people(tidemill: Tidemill) -> None:
    said = tidemill(f"simulate {TIMES} --limit 2")
    assert said.out.splitlines()[0] == "simulated 24 changes from 2026-07-01 00:00:00Z to 2026-07-02 00:00:00Z"
    assert said.out.splitlines()[2].split() == ["marts.build", "0", "12", "0s", "0"]
    listed = tidemill(f"simulate {TIMES} --task build --limit 2")
    assert "dds.orders.loaded_to 2026-06-30 23:00:00Z → 2026-07-01 01:00:00Z" in listed.out
    assert listed.err == "(2 of 12 are shown; --limit shows more)\n"
    nothing = tidemill("simulate --since 2026-01-01T00:00:00Z --until 2026-01-02T00:00:00Z")
    assert nothing.out.splitlines()[1] == "no task would have started"


def test_progress_is_told(tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr("triggers.simulation._TOLD_EVERY", 12)
    said = tidemill(f"simulate {TIMES}")
    assert said.err.startswith("as registered: ")
    assert "%, at 2026-07-01 " in said.err


# Trying

DELTA = {"kind": "delta", "entity": "dds.orders", "parameter": "loaded_to", "min_delta_us": 3 * 3600 * 1_000_000}


def test_a_trigger_is_tried(tidemill: Tidemill) -> None:
    found = simulated(tidemill, "--task", "build", "--trigger", json.dumps(DELTA))
    assert fired(found["launches"]) == [2, 5, 8, 11, 14, 17, 20, 23]
    assert fired(found["added"]) == [2, 8, 14, 20]
    assert fired(found["gone"]) == [1, 3, 7, 9, 13, 15, 19, 21]
    assert found["same"] == 4
    said = tidemill(f"simulate {TIMES} --task build --limit 1 --trigger", json.dumps(DELTA | {"format": 1}))
    assert "4 added, 8 gone, 4 the same" in said.out
    assert "as registered  as tried" in said.out


def test_a_file_is_tried(tidemill: Tidemill, tmp_path: Path) -> None:
    before = dict(declared), dict(pools.declared), dict(registry.functions)
    path = module(tmp_path / "tried", 'new_day("dds.orders", "loaded_to")', parallel=1)
    found = simulated(tidemill, "--module", str(path))
    assert fired(found["launches"]) == [0]
    assert (fired(found["added"]), len(found["gone"]), found["same"]) == ([0], 12, 0)
    assert (declared, pools.declared, registry.functions) == before


def test_a_new_task_is_tried(tidemill: Tidemill, tmp_path: Path) -> None:
    path = module(tmp_path / "tried", 'new_day("dds.orders", "loaded_to")').rename(tmp_path / "fresh_marts.py")
    found = simulated(tidemill, "--module", str(path), "--task", "fresh_marts.build")
    assert fired(found["added"], "fresh_marts.build") == [0]
    assert (found["gone"], [each["task"] for each in found["tasks"]]) == ([], ["fresh_marts.build"])


# What cannot be


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["--trigger", "{}"], 2, ("add --task NAME",)),
        (["--trigger", "{}", "--module", __file__], 2, ("cannot go together",)),
        (["--task", "build", "--trigger", "{"], 2, ("--trigger is not JSON",)),
        (["--task", "build", "--trigger", "[]"], 1, ("as a JSON object, not as []",)),
        (["--task", "build", "--trigger", "{}"], 1, ("has no 'kind'",)),
        (["--task", "build", "--trigger", '{"kind": "soon"}'], 1, ("'soon' is no kind",)),
        (["--task", "biuld"], 1, ("no reactive task 'biuld'", "did you mean marts.build?")),
        (["--module", "nowhere.py"], 2, ("'nowhere.py' does not exist",)),
        (["--length", "soon"], 2, ("'soon' is not a duration",)),
        (["--since", "2026-07-03T00:00:00Z"], 2, ("does not lie after --since",)),
        (["--since", "2026-07-01"], 2, ("has no time zone",)),
    ],
)
def test_wrong_usage_is_one_sentence(tidemill: Tidemill, words: list[str], code: int, parts: tuple[str, ...]) -> None:
    said = tidemill(f"simulate {TIMES}", *words)
    assert (said.code, said.out) == (code, "")
    assert one_sentence(said, *parts)


def test_a_trigger_that_would_run_without_end_is_refused(tidemill: Tidemill) -> None:
    # T10
    delay = {"kind": "delay", "entity": "dds.orders", "parameter": "loaded_to", "max_delay_us": 1}
    said = tidemill(f"simulate {TIMES} --task build --trigger", json.dumps(delay))
    assert (said.code, said.out) == (1, "")
    assert one_sentence(said, "marts.build", "would start again as soon as it ends")


def test_a_file_that_cannot_be_tried(tidemill: Tidemill, tmp_path: Path) -> None:
    def tried(text: str, name: str = "bad.py") -> Said:
        (tmp_path / name).write_text(text)
        return tidemill(f"simulate {TIMES} --module", str(tmp_path / name))

    assert one_sentence(tried("1 / 0"), "bad.py cannot be imported: ZeroDivisionError")
    assert one_sentence(tried("x = 1", "plain.py"), "declares no reactive task")
    assert one_sentence(tried("", "bad.txt"), "bad.txt is no Python module")


def test_a_task_of_another_release_is_left_out_and_told(tidemill: Tidemill, session: Session) -> None:
    session.execute(
        sa.update(ReactiveTask).where(ReactiveTask.name == "marts.report").values(trigger={"format": 9, "kind": "x"})
    )
    session.commit()
    said = tidemill(f"simulate {TIMES} --json")
    assert said.err == "Note: marts.report is left out: its trigger was written by another release\n"
    assert fired(said.data["launches"]) == list(range(1, 24, 2))
    assert one_sentence(tidemill(f"simulate {TIMES} --task report"), "written by another release")


def test_running_again_at_once_may_be_tried_where_it_is_meant(tidemill: Tidemill, session: Session) -> None:
    # T10
    session.execute(sa.update(ReactiveTask).where(ReactiveTask.name == "marts.build").values(min_interval=timedelta(0)))
    session.commit()
    delay = {"kind": "delay", "entity": "dds.orders", "parameter": "loaded_to", "max_delay_us": 120_000_000}
    found = simulated(tidemill, "--task", "build", "--length", "1min", "--trigger", json.dumps(delay))
    assert fired(found["launches"])[:7] == [0, 0, 0, 1, 1, 1, 2]
