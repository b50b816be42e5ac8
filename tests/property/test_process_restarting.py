"""A restart from any task of any program, at any moment, where its value is another one now: what comes out in the end
is what a fresh run comes to, and nothing that does not rest on what is done again is called again."""

from __future__ import annotations

import copy
from collections import Counter

from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from processes.graph import Node
from processes.states import TaskState
from tests.kit import process_programs
from tests.kit.process_programs import Script, meaning, programs
from tests.kit.process_table import Table
from tests.property.test_process_programs import HELD, SEEN, check


def rests_on(table: Table, numbers: set[int]) -> set[int]:
    """Those, what waits for them or was asked for by one of them, and so on: nothing else may be touched. Who has the
    value of a task that is forgotten has to ask anew, and with it all that it asked for."""
    found, left = set(numbers), list(numbers)
    while left:
        each = left.pop()
        more = {arrow.target for arrow in table.arrows if arrow.source == each}
        more |= {number for number, row in table.rows.items() if row.created_by == each}
        left += more - found
        found |= more
    return found


@example(HELD, None)
@example(SEEN, None)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.data() | st.none())
def test_after_a_restart_at_any_moment_it_comes_to_what_a_fresh_run_does(
    script: Script, data: st.DataObject | None
) -> None:
    # R10
    process_programs.begin()
    table = Table(script)
    finished_before: dict[str, str] = {}

    def pick(ready: tuple[int, ...]) -> int:
        return ready[-1] if data is None else data.draw(st.sampled_from(ready))

    # Without data: from every task that there is in the end, the last one first.
    for time in range(4 if data is None else data.draw(st.integers(1, 3))):
        for _ in range(99 if data is None else data.draw(st.integers(0, 25))):
            if table.ready:
                number = pick(tuple(table.ready))
                table.take(number, table.call(number))
        numbers = sorted(table.rows, reverse=True)
        number = numbers[time % len(numbers)] if data is None else data.draw(st.sampled_from(numbers))
        before, values, state = copy.deepcopy(table.rows), table.values(), copy.deepcopy(table.graph.nodes)
        may = rests_on(table, {number})
        process_programs.editions[before[number].label] += 1
        planned = table.restart([number])
        event(f"again: {len(planned.again)}, follows: {len(planned.follows)}")
        check_count(table)
        assert number in planned.again
        assert may >= planned.again | planned.follows | planned.forgotten
        assert not planned.again & planned.follows
        assert not planned.forgotten & (planned.again | planned.follows)
        for kept in before.keys() - planned.again - planned.follows - planned.forgotten:
            assert same(state[kept], table.graph.nodes[kept])
            assert table.rows[kept] == before[kept]
            if state[kept].state is TaskState.FINISHED:
                label = before[kept].label
                assert table.values()[label] == values[label]
        finished_before = table.values()
    calls = Counter({number: row.calls for number, row in table.rows.items()})
    kept_finished = {
        n for n, node in table.graph.nodes.items() if node.state in (TaskState.FINISHED, TaskState.FOLLOWS)
    }
    table.go_on(pick)
    check(table) if table.graph.tasks == len(table.rows) else check_count(table)
    meant, found = meaning(script), table.by_label()
    assert table.values() == meant.values
    assert {label for label, node in found.items() if node.state is TaskState.BROKEN} == meant.broken
    assert table.graph.finished == (not meant.broken and not meant.waits)
    # What had its result is not called again.
    assert all(table.rows[number].calls == calls[number] for number in kept_finished)
    assert all(table.values()[label] == value for label, value in finished_before.items())


def same(one: Node, other: Node) -> bool:
    # What waits may wait for more than before.
    return one.state is other.state and one.value_of == other.value_of and one.pending <= other.pending


def check_count(table: Table) -> None:
    """Numbers are not given twice: those of what is forgotten are gone."""
    gaps = table.graph.tasks - len(table.rows)
    table.graph.tasks -= gaps
    check(table)
    table.graph.tasks += gaps
