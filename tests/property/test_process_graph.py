"""The graph of a process under any decisions, circles too, against sets and a fixpoint; and the part of it that
accepting loads against the whole."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, event, example, given, settings, target
from hypothesis import strategies as st

from app.errors import BadRequest
from processes import graph
from processes.flow import Planned
from processes.graph import Arrow, Decided, Graph, Node, numbered
from processes.model import ROOT
from processes.states import TaskState

ANY_TIME = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
FINISHED, FOLLOWS, BROKEN = TaskState.FINISHED, TaskState.FOLLOWS, TaskState.BROKEN


@dataclass
class Naive:
    """What was said, and nothing that follows from it."""

    waits: dict[int, set[int]] = field(default_factory=lambda: {ROOT: set()})
    #: Of those that have decided: whose value is theirs; None: one of their own.
    decided: dict[int, int | None] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)

    def finished(self) -> set[int]:
        found: set[int] = set()
        while more := {each for each, of in self.decided.items() if each not in found and (of is None or of in found)}:
            found |= more
        return found

    def ready(self) -> set[int]:
        ended = self.finished()
        return {each for each, of in self.waits.items() if each not in self.decided and of <= ended} - self.broken

    def rests_on(self, number: int) -> set[int]:
        """All that it waits for, for its beginning or for its value."""
        found: set[int] = set()
        left = [number]
        while left:
            each = left.pop()
            more = self.waits[each] | ({of} if (of := self.decided.get(each)) is not None else set())
            left += more - found
            found |= more
        return found

    def holder(self, number: int) -> int:
        of = self.decided[number]
        return number if of is None else self.holder(of)

    def decide(self, number: int, decision: Decided) -> bool:
        """Whether it can be."""
        first = len(self.waits) + 1
        after = Naive(dict(self.waits), dict(self.decided), set(self.broken))
        for i, call in enumerate(decision.planned):
            after.waits[first + i] = {numbered(each, first) for each in call.waits_for}
        of = None if decision.value_of is None else numbered(decision.value_of, first)
        if of is not None and (of == number or number in after.rests_on(of)):
            return False
        after.decided[number] = of
        after.broken.discard(number)
        self.waits, self.decided, self.broken = after.waits, after.decided, after.broken
        return True


def compare(of: Graph, naive: Naive) -> None:
    ended, ready = naive.finished(), naive.ready()
    assert of.tasks == len(naive.waits) == len(of.nodes)
    assert of.unfinished == len(naive.waits) - len(ended)
    assert of.broken == len(naive.broken)
    assert of.finished == (len(ended) == len(naive.waits))
    for number, node in of.nodes.items():
        pending = 0 if number in ended else len(naive.waits[number] - ended)
        if number in ended:
            holder = naive.holder(number)
            expected = Node(FINISHED, 0, None if holder == number else holder)
        elif number in naive.broken:
            expected = Node(BROKEN, pending)
        elif number in naive.decided:
            expected = Node(FOLLOWS, pending, naive.decided[number])
        else:
            expected = Node(TaskState.READY if number in ready else TaskState.PENDING, pending)
        assert node == expected, number


def part(of: Graph, deciding: list[tuple[int, Decided]]) -> Graph:
    """What `accepting` loads for these decisions together: see `statements.touched`."""
    found = Graph(of.tasks, of.unfinished, of.broken)
    wanted = {number for number, _ in deciding}
    arrows: set[Arrow] = set()
    for number, decision in deciding:
        wanted |= graph.named(decision.planned, decision.value_of)
        of_it = graph.touched(decision)
        seen, left = {number}, [number] if of_it is not graph.Touched.NOTHING else []
        while left:
            out = set(of.arrows.get(left.pop(), ()))
            arrows |= out
            more = {arrow.target for arrow in out if arrow.value or of_it is graph.Touched.EVERYTHING} - seen
            seen |= more
            left += more
    for arrow in arrows:
        found.arrows.setdefault(arrow.source, []).append(arrow)
        wanted.add(arrow.target)
    found.nodes = {number: copy.copy(of.nodes[number]) for number in wanted}
    return found


@st.composite
def decisions(draw: st.DrawFn, tasks: int) -> Decided:
    """Of any task of a graph of so many: whatever it may name."""
    planned: list[Planned] = []
    for made in range(draw(st.integers(0, 3))):
        refs = st.lists(st.integers(1, tasks) | (st.integers(1 - made, 0) if made else st.nothing()), max_size=3)
        uses, after = draw(refs), draw(refs)
        planned.append(Planned("a", "{}", tuple(uses), tuple(after)))
    own = st.integers(1 - len(planned), 0) if planned else st.nothing()
    value_of = draw(st.none() | st.integers(1, tasks) | own)
    return Decided(planned, value_of)


def copied(of: Graph) -> Graph:
    nodes = {number: copy.copy(node) for number, node in of.nodes.items()}
    return Graph(of.tasks, of.unfinished, of.broken, nodes, {number: list(out) for number, out in of.arrows.items()})


def put(of: Graph, naive: Naive, number: int, decision: Decided) -> graph.Step | None:
    """On both; None where it is refused by both."""
    before = copied(of)
    possible = naive.decide(number, decision)
    try:
        step = graph.apply(of, number, decision)
    except BadRequest:
        assert not possible
        assert of == before
        return None
    assert possible
    return step


def told(step: graph.Step) -> graph.Step:
    """In an order of its own: that of rows is nobody's."""
    return graph.Step(step.created, step.arrows, sorted(step.ready), sorted(step.finished), step.changed)


@ANY_TIME
@given(st.data())
def test_decisions_do_what_the_rules_say_and_the_part_that_is_loaded_is_enough(data: st.DataObject) -> None:
    # P1, P4, P8, P9
    of, naive = Graph(1, 1, 0, {ROOT: Node(TaskState.READY)}), Naive()
    first: list[int] = []
    finished: list[int] = []
    for _ in range(data.draw(st.integers(1, 12))):
        can = sorted(naive.ready() | naive.broken)
        if not can:
            break
        batch = data.draw(st.lists(st.sampled_from(can), min_size=1, max_size=3, unique=True))
        deciding = [(number, data.draw(decisions(of.tasks))) for number in batch]
        loaded = part(of, deciding)
        for number, decision in deciding:
            if number not in naive.broken and data.draw(st.integers(0, 5)) == 0:
                graph.broken(of, number)
                graph.broken(loaded, number)
                naive.broken.add(number)
                continue
            alone = copied(loaded)
            step = put(of, naive, number, decision)
            if step is None:
                event("refused")
                with pytest.raises(BadRequest):
                    graph.apply(loaded, number, decision)
                assert loaded == alone
                continue
            assert told(graph.apply(loaded, number, decision)) == told(step)
            first += step.ready
            finished += step.finished
            compare(of, naive)
        # What is written is that of the part.
        assert (loaded.tasks, loaded.unfinished, loaded.broken) == (of.tasks, of.unfinished, of.broken)
        assert {number: of.nodes[number] for number in loaded.nodes} == loaded.nodes
        compare(of, naive)
    target(float(of.tasks))
    # Each once.
    assert len(first) == len(set(first))
    assert sorted(finished) == sorted(naive.finished())


CHAIN = 5


@example(tuple(range(CHAIN)))
@ANY_TIME
@given(st.permutations(range(CHAIN)))
def test_deciders_that_follow_each_other_decide_in_any_order(order: tuple[int, ...]) -> None:
    # P8: task 2 has the value of 3, that of 4, and so on; 7 waits for the first of them.
    of, naive = Graph(1, 1, 0, {ROOT: Node(TaskState.READY)}), Naive()
    calls = [Planned("a", "{}") for _ in range(CHAIN)]
    put(of, naive, ROOT, Decided([*calls, Planned("a", "{}", (0,))]))
    last = ROOT + CHAIN
    for each in order:
        number = ROOT + 1 + each
        step = put(of, naive, number, Decided((), None if number == last else number + 1))
        assert step is not None
        compare(of, naive)
    assert of.nodes[last + 1].state is TaskState.READY
    assert [of.nodes[number].value_of for number in range(2, last)] == [last] * (CHAIN - 1)


def test_a_promise_that_is_kept_before_it_is_returned_is_the_value_at_once() -> None:
    # P8: 2 finishes while 3, which holds its promise, still runs; 4 waits for 3.
    of, naive = Graph(1, 1, 0, {ROOT: Node(TaskState.READY)}), Naive()
    put(of, naive, ROOT, Decided([Planned("a", "{}"), Planned("d", "{}"), Planned("a", "{}", (-1,))], -2))
    put(of, naive, 2, Decided())
    step = put(of, naive, 3, Decided((), 2))
    assert step is not None
    assert (step.finished, step.ready) == ([3], [4])
    compare(of, naive)
    put(of, naive, 4, Decided())
    assert of.finished
    assert (of.nodes[3].value_of, of.nodes[ROOT].value_of) == (2, 4)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_circle_is_refused_whoever_closes_it(size: int) -> None:
    # P8: each has the value of the next one; the last would have that of the first.
    for order in itertools.permutations(range(size)):
        of, naive = Graph(1, 1, 0, {ROOT: Node(TaskState.READY)}), Naive()
        put(of, naive, ROOT, Decided([Planned("d", "{}")] * size))
        done = [put(of, naive, 2 + each, Decided((), 2 + (each + 1) % size)) is not None for each in order]
        assert done == [True] * (size - 1) + [False]
        compare(of, naive)
        graph.broken(of, 2 + order[-1])
        # It may decide otherwise after all.
        assert put(of, Naive(naive.waits, naive.decided, {2 + order[-1]}), 2 + order[-1], Decided()) is not None
        assert of.finished


def test_a_circle_through_a_call_of_its_own_is_refused() -> None:
    of, naive = Graph(1, 1, 0, {ROOT: Node(TaskState.READY)}), Naive()
    assert put(of, naive, ROOT, Decided([Planned("a", "{}", (ROOT,))], 0)) is None
    assert put(of, naive, ROOT, Decided([Planned("a", "{}", (ROOT,)), Planned("a", "{}", (0,))], -1)) is None
    assert put(of, naive, ROOT, Decided([Planned("a", "{}", (ROOT,))])) is not None
    compare(of, naive)


def test_a_broken_task_stops_what_waits_for_it_and_nothing_else() -> None:
    # P9
    of, naive = Graph(1, 1, 0, {ROOT: Node(TaskState.READY)}), Naive()
    calls = [Planned("a", "{}"), Planned("a", "{}"), Planned("a", "{}", (0,)), Planned("a", "{}", (-1,))]
    put(of, naive, ROOT, Decided(calls))
    graph.broken(of, 2)
    graph.broken(of, 2)
    naive.broken.add(2)
    compare(of, naive)
    assert put(of, naive, 3, Decided()) == graph.Step(finished=[3], ready=[5], changed={5})
    put(of, naive, 5, Decided())
    assert (of.finished, of.broken, of.unfinished) == (False, 1, 2)
    # P5: its result came after all.
    assert put(of, naive, 2, Decided()) == graph.Step(finished=[2], ready=[4], changed={4})
    assert (of.broken, of.unfinished) == (0, 1)
    compare(of, naive)
