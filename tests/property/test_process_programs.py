"""Any program of deciders and actors, in any order of completion: what comes out is what the rules say."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from processes.graph import Graph
from processes.states import TaskState
from tests.kit import process_programs
from tests.kit.process_programs import FLAKY, WELL, Script, meaning, programs
from tests.kit.process_table import Table

UNFINISHED = (TaskState.PENDING, TaskState.READY, TaskState.FOLLOWS, TaskState.BROKEN)


def counted(table: Table) -> tuple[int, int, int, dict[int, int]]:
    """Tasks, unfinished and broken ones, and how many each waits for, from the rows alone."""
    nodes = table.graph.nodes
    ended = {number for number, node in nodes.items() if node.state is TaskState.FINISHED}
    waits = {
        number: 0 if number in ended else len({*row.uses, *row.after} - ended) for number, row in table.rows.items()
    }
    broken = sum(node.state is TaskState.BROKEN for node in nodes.values())
    return len(table.rows), len(nodes) - len(ended), broken, waits


def check(table: Table) -> None:
    of: Graph = table.graph
    tasks, unfinished, broken, waits = counted(table)
    assert (of.tasks, of.unfinished, of.broken) == (tasks, unfinished, broken)
    assert {number: node.pending for number, node in of.nodes.items()} == waits
    assert len(set(table.ready)) == len(table.ready)
    for number, node in of.nodes.items():
        # P1: ready when nothing that it waits for is unfinished, and not before.
        assert (node.state is TaskState.READY) == (number in table.ready)
        assert (node.state is TaskState.PENDING) == (waits[number] > 0)
        if node.state is TaskState.FOLLOWS:
            assert of.nodes[node.value_of or 0].state is not TaskState.FINISHED
        if node.state is TaskState.FINISHED and node.value_of is not None:
            # P8: it names whoever holds the value, not somebody who has it from another.
            assert of.nodes[node.value_of].value_of is None
    assert of.finished == all(node.state is TaskState.FINISHED for node in of.nodes.values())


def act(label: str) -> Script:
    return {"label": label, "decider": False, "end": WELL, "stumbles": 0}


def plan(label: str, calls: list[Any], returns: Any) -> Script:
    return {"label": label, "decider": True, "end": WELL, "stumbles": 0, "calls": calls, "returns": returns}


def call(script: Script, *, uses: Any = (), after: Any = (), passes: Any = ()) -> dict[str, Any]:
    return {"script": script, "uses": list(uses), "after": list(after), "passes": list(passes)}


FIRST, GIVEN = ["call", 0], ["given", 0]
#: A task finishes while the decider that holds its promise still runs, which then returns it as its value.
HELD = plan(
    "1",
    [call(act("1.0")), call(plan("1.1", [], GIVEN), passes=[FIRST]), call(act("1.2"), uses=[["call", 1]])],
    ["call", 2],
)
#: The same, where the decider has waited for the value too.
SEEN = plan("1", [call(act("1.0")), call(plan("1.1", [], GIVEN), uses=[FIRST], passes=[FIRST])], ["call", 1])


@example(HELD, None)
@example(SEEN, None)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.data() | st.none())
def test_a_program_comes_to_what_the_rules_say(script: Script, data: st.DataObject | None) -> None:
    # P1, P8, P9
    process_programs.begin()
    table = Table(script)

    def pick(ready: tuple[int, ...]) -> int:
        check(table)
        return ready[-1] if data is None else data.draw(st.sampled_from(ready))

    table.go_on(pick)
    check(table)
    meant, found = meaning(script), table.by_label()
    event(f"tasks: {len(found) // 5 * 5}…")
    assert table.values() == meant.values
    assert {label for label, node in found.items() if node.state is TaskState.BROKEN} == meant.broken
    # Nothing is wedged: what has not finished waits for something that is broken.
    assert {label for label, node in found.items() if node.state in UNFINISHED} == meant.broken | meant.waits
    assert table.graph.finished == (not meant.broken and not meant.waits)
    for number, row in table.rows.items():
        # Once, but for what has failed.
        stumbles = process_programs.stumbled[row.label]
        broken = table.graph.nodes[number].state is TaskState.BROKEN
        once = 0 if table.graph.nodes[number].state is TaskState.PENDING else 1
        assert row.calls == (FLAKY + 1 if broken else once + stumbles)
