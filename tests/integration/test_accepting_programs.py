"""The real engine against the model: the same programs, the same rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import Engine

from app.db import autocommit
from processes import ProcessState, loading, operate, start, starting
from processes.answers import Answer, Handed, Refuse
from processes.model import ROOT
from processes.states import DecisionState, TaskState
from tests.kit import decisions, process_programs
from tests.kit.process_programs import Script, meaning, plan, programs
from tests.kit.process_table import Table, answered, told
from tests.property.test_process_programs import HELD, SEEN

SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
PHASES = [Phase.explicit, Phase.generate]
FEW = settings(max_examples=15, phases=PHASES, deadline=None, suppress_health_check=SLOW)
ROLES = ("program.plan", "program.act")


@pytest.fixture
def known(engine: Engine) -> None:
    decisions.ready()


class Pair:
    """One process in Postgres, and the same in memory."""

    def __init__(self, script: Script) -> None:
        process_programs.begin()
        decisions.clear()
        self.table = Table(script)
        self.process_id = start(plan, script, [])
        starting.run_once()
        self.out: list[Handed] = []

    def hand_out(self) -> None:
        self.out += [handed for role in ROLES for handed in decisions.take(role)]
        self.out.sort(key=lambda handed: handed.number)
        assert [handed.number for handed in self.out] == sorted(self.table.ready)

    def accept(self, batch: Sequence[Handed]) -> None:
        """What both are given is the same, and both are answered so."""
        with autocommit() as connection:
            inputs = loading.load(connection, [handed.key for handed in batch])
        answers = []
        for handed in batch:
            stored, row = inputs[handed.key], self.table.rows[handed.number]
            ours = self.table.given(handed.number)
            assert (stored.actor, json.loads(stored.arguments)) == (row.actor, json.loads(row.arguments))
            assert stored.values == ours.values
            answers.append(Answer(handed, answered(row.actor, stored)))
            self.out.remove(handed)
        decisions.accept(*answers)
        for answer in answers:
            self.table.take(answer.handed.number, answer.outcome)
        self.compare()

    def compare(self) -> None:
        of = self.table.graph
        tasks = decisions.tasks(self.process_id)
        assert {number: (row.state, row.pending, row.value_of) for number, row in tasks.items()} == {
            number: (node.state, node.pending, node.value_of) for number, node in of.nodes.items()
        }
        assert decisions.edges(self.process_id) == {tuple(arrow) for arrow in self.table.arrows}
        graph = decisions.graph(self.process_id)
        assert (graph.tasks, graph.unfinished, graph.broken) == (of.tasks, of.unfinished, of.broken)
        # P7: nothing has to look after what has finished.
        assert (graph.recovery_time is None) == of.finished
        self._compare_rows(tasks)
        self._compare_process()

    def _compare_rows(self, tasks: dict[int, Any]) -> None:
        of = self.table.graph
        made = decisions.decisions(self.process_id)
        for number, row in self.table.rows.items():
            stored, node = tasks[number], of.nodes[number]
            assert (stored.created_by, sorted(stored.uses or ())) == (row.created_by, sorted(row.uses))
            own = node.state is TaskState.FINISHED and node.value_of is None
            assert stored.result == (json.loads(row.result or "") if own else None)
            waits = node.state is TaskState.READY
            assert (number in made and made[number].state != DecisionState.FINISH) == waits
            assert (stored.ended_at is not None) == (node.state is TaskState.FINISHED)
        broken = {number for number, node in of.nodes.items() if node.state is TaskState.BROKEN}
        assert decisions.broken(self.process_id).keys() == broken

    def _compare_process(self) -> None:
        of, process = self.table.graph, decisions.process(self.process_id)
        state = ProcessState.BROKEN if of.broken else ProcessState.ACTIVE
        assert process.state == (ProcessState.FINISHED if of.finished else state)
        assert process.value == (json.loads(self.table.stored(ROOT)) if of.finished else None)
        assert (process.error is not None) == (process.state == ProcessState.BROKEN)


@example(HELD, None)
@example(SEEN, None)
@FEW
@given(programs(), st.data() | st.none())
def test_rows_are_those_of_the_model_after_every_batch(known: None, script: Script, data: st.DataObject | None) -> None:
    # P1, P4, P8, P9
    pair = Pair(script)
    pair.hand_out()
    while pair.out:
        batch = pair.out[:1]
        if data is not None:
            batch = data.draw(st.lists(st.sampled_from(pair.out), min_size=1, max_size=4, unique=True))
        pair.accept(batch)
        pair.hand_out()
    meant = meaning(script)
    assert pair.table.values() == meant.values
    assert {pair.table.rows[number].label for number in decisions.broken(pair.process_id)} == meant.broken


@example(SEEN, None)
@FEW
@given(programs(), st.data() | st.none())
def test_rows_are_those_of_the_model_after_a_restart(known: None, script: Script, data: st.DataObject | None) -> None:
    # R10, P5
    pair = Pair(script)
    pair.hand_out()
    for _ in range(3):
        for _ in range(99 if data is None else data.draw(st.integers(0, 12))):
            if pair.out:
                pair.accept([pair.out[-1] if data is None else data.draw(st.sampled_from(pair.out))])
                pair.hand_out()
        numbers = sorted(pair.table.rows)
        number = (2 if 2 in numbers else ROOT) if data is None else data.draw(st.sampled_from(numbers))
        process_programs.editions[pair.table.rows[number].label] += 1
        late = pair.out
        planned = pair.table.restart([number])
        said = operate.restart(pair.process_id, number)
        assert {*said.again} == planned.again
        assert ({*said.follows}, {*said.forgotten}) == (set(planned.follows), set(planned.forgotten))
        pair.compare()
        pair.out = [handed for handed in late if handed.number not in planned.again | planned.forgotten]
        for handed in late:
            if handed not in pair.out:
                # P5: an operator has restarted it since.
                refused = decisions.answer(handed, answered("program.act", pair_input(handed)))
                assert isinstance(refused, Refuse)
        pair.hand_out()
        pair.compare()
    while pair.out:
        pair.accept(pair.out[:3])
        pair.hand_out()
    assert pair.table.values() == meaning(script).values


@FEW
@given(programs(), st.integers(0, 12), st.data())
def test_a_copy_comes_to_the_same_and_leaves_the_original_alone(
    known: None, script: Script, steps: int, data: st.DataObject
) -> None:
    # R10
    pair = Pair(script)
    pair.hand_out()
    for _ in range(steps):
        if pair.out:
            pair.accept([data.draw(st.sampled_from(pair.out))])
            pair.hand_out()
    rows = decisions.tasks(pair.process_id)
    copy = operate.restart(pair.process_id, data.draw(st.sampled_from(sorted(rows))), copy=True).copy or 0
    assert decisions.tasks(pair.process_id) == rows
    pair.compare()
    decisions.settle()
    meant = meaning(script)
    assert by_label(copy, TaskState.FINISHED) == meant.values.keys()
    assert by_label(copy, TaskState.BROKEN) == meant.broken
    process = decisions.process(copy)
    if not meant.broken and not meant.waits:
        assert (process.state, told(process.value)) == (ProcessState.FINISHED, meant.values[script["label"]])
    while pair.out:
        pair.accept(pair.out[:3])
        pair.hand_out()
    assert pair.table.values() == meant.values


def pair_input(handed: Handed) -> loading.Input:
    """Of nobody: an answer that comes too late has any value."""
    script = {"label": f"late {handed.number}", "end": "well", "stumbles": 0}
    table = Table({**script, "decider": True, "calls": [], "returns": None})
    found = table.given(ROOT)
    return loading.Input(found.actor, json.dumps({"args": [script], "kwargs": {}}), found.created_at, None, "{}")


def by_label(process_id: int, state: TaskState) -> set[str]:
    tasks = decisions.tasks(process_id).values()
    return {row.arguments["args"][0]["label"] for row in tasks if row.state == state}


def recount(process_id: int) -> None:
    """From the rows alone."""
    tasks, graph, edges = decisions.tasks(process_id), decisions.graph(process_id), decisions.edges(process_id)
    ended = {number for number, row in tasks.items() if row.state == TaskState.FINISHED}
    broken = [row for row in tasks.values() if row.state == TaskState.BROKEN]
    assert (graph.tasks, graph.unfinished, graph.broken) == (len(tasks), len(tasks) - len(ended), len(broken))
    for number, row in tasks.items():
        waits = {source for source, target, value in edges if target == number and not value and source not in ended}
        assert row.pending == (0 if number in ended else len(waits))


@FEW
@given(programs(), st.integers(1, 4), st.integers(1, 4))
def test_two_workers_for_one_process_come_to_what_the_rules_say(
    known: None, script: Script, one: int, two: int
) -> None:
    # P1, P4, P8, P9
    process_programs.begin()
    decisions.clear()
    process_id = start(plan, script, [])
    calls = [decisions.PlainCalls(), decisions.PlainCalls()]

    def work(which: int, take: int) -> None:
        server = decisions.server(calls[which], f"worker-{which}")
        idle = 0
        while idle < 3:
            made = sum(server.serve(f"actor.{role}", take)[0] for role in ROLES)
            idle = 0 if made else idle + 1

    threads = [Thread(target=work, args=(which, take)) for which, take in enumerate((one, two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    decisions.settle()
    meant = meaning(script)
    recount(process_id)
    assert by_label(process_id, TaskState.FINISHED) == meant.values.keys()
    assert by_label(process_id, TaskState.BROKEN) == meant.broken
    ended = not meant.broken and not meant.waits
    process = decisions.process(process_id)
    assert process.state == (ProcessState.FINISHED if ended else ProcessState.BROKEN)
    if ended:
        assert told(process.value) == meant.values[script["label"]]


@FEW
@given(programs(), st.integers(0, 12), st.booleans())
def test_an_aborted_process_takes_nothing_and_goes_on_when_it_is_restarted(
    known: None,
    script: Script,
    steps: int,
    root: bool,  # noqa: FBT001
) -> None:
    # R10, P5
    pair = Pair(script)
    pair.hand_out()
    for _ in range(steps):
        if pair.out:
            pair.accept(pair.out[:1])
            pair.hand_out()
    if pair.table.graph.finished:
        return
    operate.abort(pair.process_id)
    process = decisions.process(pair.process_id)
    assert (process.state, process.recovery_time) == (ProcessState.ABORTED, None)
    rows = decisions.tasks(pair.process_id)
    for handed in pair.out:
        assert isinstance(decisions.answer(handed, answered("program.act", pair_input(handed))), Refuse)
    assert decisions.tasks(pair.process_id) == rows
    assert not decisions.settle().called
    task = None if root else max(rows)
    operate.restart(pair.process_id, task)
    decisions.settle()
    meant = meaning(script)
    assert by_label(pair.process_id, TaskState.FINISHED) == meant.values.keys()
    assert by_label(pair.process_id, TaskState.BROKEN) == meant.broken
