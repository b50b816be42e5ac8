"""The pass over all tasks: right on its own, and with a number of statements that does not grow with theirs (T17)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from app import db
from tests.kit import reactive as kit
from tests.kit.plans import Statement, captured, explain
from tests.kit.reactive import ORDERS, World, day
from triggers import All, Any, ChunkDelta, Delta, RefDelay, operate, polling, work
from triggers.instants import to_instant
from triggers.model import TASK, Evaluation
from triggers.shape import shape

DAILY = ChunkDelta(*ORDERS, "day")
CHUNKS = {"format": 1, "kind": "chunk_delta", "entity": "e", "parameter": "p", "scale": "day", "delta": 1, "tz": "UTC"}
MANY = """
INSERT INTO tidemill.ctl (entity, parameter, value)
SELECT 'dds.e' || i, 'p', :moment FROM generate_series(1, :rows) AS i;
INSERT INTO tidemill.reactive_task (name, module, pool, priority, trigger, shape, produces, first_run, on_lapse,
    max_failures, backoff, code)
SELECT 'many.t' || i, 'many', 'default', 0,
    jsonb_set(cast(:trigger as jsonb), '{entity}', to_jsonb('dds.e' || i)), :shape, '[]', 'fire', 'drop', 5, '5s', 'c'
FROM generate_series(1, :rows) AS i;
INSERT INTO tidemill.reactive_leaf (task_id, position, entity, parameter, latched)
SELECT id, 0, trigger ->> 'entity', trigger ->> 'parameter', true FROM tidemill.reactive_task WHERE module = 'many';
INSERT INTO tidemill.ctl_seen (task, entity, parameter, value)
SELECT 'many.t' || i, 'dds.e' || i, 'p', :moment FROM generate_series(1, :rows) AS i;
INSERT INTO tidemill.run (task, state, queue, priority, generation, ended_at)
SELECT 'many.t' || i, 'done', 'reactive.default', 0, 0, now() FROM generate_series(1, :rows) AS i;
ANALYZE tidemill.ctl, tidemill.reactive_task, tidemill.reactive_leaf, tidemill.ctl_seen, tidemill.run
"""


@pytest.fixture
def world(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # However slow the machine is: a ticket serves all there is.
    monkeypatch.setattr(work, "TICKET_SECONDS", 300.0)
    with kit.world() as found:
        yield found


def _fill(rows: int) -> None:
    trigger = ChunkDelta("-", "p", "day")
    words = {"rows": rows, "moment": day(1), "trigger": json.dumps(trigger.to_json()), "shape": shape(trigger)}
    for each in MANY.split(";"):
        kit.execute(sa.text(each).bindparams(**{name: words[name] for name in words if f":{name}" in each}))


def _statements(entities: int = 0) -> tuple[polling.Report, list[Statement]]:
    if entities:
        some = sa.text("UPDATE tidemill.ctl SET value = :v WHERE entity IN (SELECT entity FROM tidemill.ctl LIMIT :n)")
        kit.execute(some.bindparams(v=day(2), n=entities))
    with captured(db.engine()) as found:
        report = polling.run_once()
    return report, found


def test_moments_are_counted_to_the_microsecond(world: World) -> None:
    # The near ones by a double, the far ones as decimals.
    moments = [datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    for edge in (datetime(1970, 1, 1, tzinfo=UTC), datetime(2106, 1, 1, tzinfo=UTC), datetime(2242, 3, 16, tzinfo=UTC)):
        moments += [edge + timedelta(microseconds=each) for each in range(-1000, 1000)]
    moments += [day(1) + timedelta(days=97 * each, microseconds=7 * each + 1) for each in range(5000)]
    given = sa.func.unnest(sa.cast(moments, ARRAY(sa.DateTime(timezone=True)))).column_valued("given")
    counted = kit.execute(sa.select(polling.micros(given)))
    assert [value for (value,) in counted] == [to_instant(each) for each in moments]


def test_the_number_of_statements_does_not_grow_with_the_tasks(world: World) -> None:
    # T17
    counts = {}
    for rows in (10, 3000):
        kit.empty("ctl", "reactive_task", "ctl_seen", "run")
        _fill(rows)
        quiet, quietly = _statements()
        fired, loudly = _statements(entities=rows)
        assert (quiet.evaluated, quiet.started, fired.evaluated, fired.started) == (rows, 0, rows, rows)
        # What is prepared is prepared once, or anew where it was slow.
        counts[rows] = [
            sum(not each.text.startswith(("PREPARE", "DEALLOCATE")) for each in some) for some in (quietly, loudly)
        ]
    assert counts[10] == counts[3000]


def test_each_table_is_read_once_or_by_index(world: World) -> None:
    # T17
    _fill(20_000)
    _, quiet = _statements()
    taking, scan = [each for each in quiet if "reactive_leaf" in each.text]
    # Of those that take what is there first for seen, there are none.
    assert explain(db.engine(), taking).read_whole() == set()
    text = scan.text.partition(" FOR ")[2] if scan.text.startswith("DECLARE") else scan.text
    plan = explain(db.engine(), Statement(text, scan.parameters))
    kinds = [node["Node Type"] for node in plan.nodes()]
    assert "Nested Loop" not in kinds, kinds
    read = [node["Relation Name"] for node in plan.nodes() if "Relation Name" in node]
    assert sorted(read) == ["ctl", "ctl", "ctl_seen", "reactive_leaf", "reactive_task", "run"], read
    assert "run" not in plan.read_whole(), "the live ones lie in an index of their own"


def test_a_few_that_fire_among_many_are_found_by_index(world: World) -> None:
    # T17
    _fill(20_000)
    report, statements = _statements(entities=3)
    assert report.started == 3
    big = {"ctl", "ctl_seen", "reactive_task", "run"}
    for each in statements:
        if each.text.startswith(("SELECT", "UPDATE", "WITH")) and "reactive_leaf" not in each.text:
            assert explain(db.engine(), each).read_whole().isdisjoint(big), each.text


def test_a_pass_starts_at_most_what_it_may_and_comes_back_for_the_rest(world: World) -> None:
    for number in range(5):
        world.declare(f"t{number}", DAILY)
    world.sync()
    kit.advance(day(1))
    reports = [world.poll(limit=2) for _ in range(4)]
    assert [(each.started, each.more) for each in reports] == [(2, True), (2, True), (1, False), (0, False)]
    assert world.poll(limit=0).started == 0


def test_what_cannot_start_does_not_stand_before_what_can(world: World) -> None:
    # T22: quarantined tasks are looked at in every pass
    for number in range(5):
        world.declare(f"a{number}", DAILY, kit.fail, max_failures=1)
    world.sync()
    kit.advance(day(1))
    assert world.step() == 5
    task = world.task("z", DAILY)
    assert world.poll(limit=1).started == 1
    assert kit.states(task) == ["waiting"]


@pytest.mark.parametrize(
    "broken",
    [
        {"trigger": {"format": 99, "kind": "delta"}, "shape": '{"format":99,"kind":"delta"}'},
        {"trigger": {"format": 1, "kind": "moon_phase"}, "shape": '{"format":1,"kind":"moon_phase"}'},
        {"trigger": [1, 2], "shape": "no json"},
        {"trigger": {"format": 1, "kind": "all", "leaves": [5]}, "shape": "[]"},
        {
            "trigger": {
                "format": 1,
                "kind": "chunk_delta",
                "entity": 5,
                "parameter": [],
                "scale": {},
                "delta": "x",
                "tz": 1,
            }
        },
    ],
)
def test_a_task_that_only_a_newer_release_can_read_stops_no_other(
    world: World, broken: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [world.task(name, DAILY) for name in ("a", "b", "c")]
    kit.set_task(tasks[1], **({"shape": "{}"} | broken))
    kit.advance(day(1))
    with caplog.at_level(logging.ERROR):
        report = world.poll()
    assert (report.started, report.unreadable) == (2, 1)
    assert f"{tasks[1]} is not evaluated" in caplog.text
    assert world.serve() == 2
    world.undeclare(tasks[1])
    world.declare("d", DAILY)
    assert world.sync().new, "and the next release starts all the same"


def test_the_pass_decides_as_the_trigger_does(world: World) -> None:
    # T2, T4, T8
    other, ref = ("c", "p"), ("d", "q")
    both = world.task("both", All(Delta(*ORDERS, "1d"), RefDelay(*other, *ref, "1h")))
    one = world.task("one", Any(Delta(*ORDERS, "1d"), Delta(*other, "1d")))
    kit.advance(day(1))
    assert world.step() == 1
    kit.advance(day(1), other)
    assert world.step() == 1, "new to the one; the other's reference is missing"
    kit.advance(day(1), ref)
    assert world.step() == 1
    assert world.ran == [one, one, both]


def test_paused_and_removed_tasks_are_not_evaluated(world: World) -> None:
    first, second, third = (world.task(name, DAILY) for name in ("a", "b", "c"))
    operate.pause(first)
    world.undeclare(second)
    world.sync()
    kit.advance(day(1))
    report = world.poll()
    assert (report.evaluated, report.started, kit.states(third)) == (1, 1, ["waiting"])
    operate.resume(first)
    assert kit.states(first) == ["waiting"]


def test_a_pause_takes_back_what_waits_and_resuming_starts_it_again(world: World) -> None:
    task = world.task("a", DAILY)
    kit.advance(day(1))
    world.poll()
    operate.pause(task)
    assert (kit.states(task), world.step()) == (["cancelled"], 0)
    operate.resume(task)
    assert world.serve() == 1
    assert kit.states(task) == ["cancelled", "done"]


def test_pages_hold_tasks_whole(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "PAGE", 3)
    parameters = [(f"e{number}", "p") for number in range(4)]
    for number in range(5):
        world.declare(f"t{number}", All(*(Delta(*each, "1d") for each in parameters)))
    world.sync()
    for each in parameters:
        kit.advance(day(1), each)
    report = world.poll()
    assert (report.evaluated, report.hits, report.started) == (5, 5, 5)
    assert len(kit.execute(sa.select(TASK.c.name).where(TASK.c.fired))) == 5
    stored = kit.execute(sa.select(Evaluation.task, sa.func.jsonb_array_length(Evaluation.values)))
    assert sorted(tuple(each) for each in stored) == [(f"{kit.MODULE}.t{number}", 4) for number in range(5)]
