"""Of orders that differ only in what commutes, exactly one is played (`tests.kit.commuting`)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from tests.kit.commuting import Effect, Path

#: A session, and which of its turns.
Turn = tuple[int, int]
tables = st.sets(st.sampled_from("xyz"), max_size=2)
effects = st.builds(
    lambda named, written, published, begun, unknown: Effect(named | written, written, published, begun, unknown),
    *(tables, tables, tables),
    st.integers(0, 5).map(lambda n: n == 0),
    st.integers(0, 9).map(lambda n: n == 0),
)
programs = st.lists(st.lists(effects, min_size=1, max_size=3), min_size=2, max_size=3)


def played(program: list[list[Effect]], *, alike: bool) -> tuple[list[tuple[Turn, ...]], Path[Turn]]:
    """To their ends; each begins anew, as sessions on a database do."""
    path, found, share = Path[Turn](alike=alike), [], Fraction(0)
    while True:
        done = [0] * len(program)
        number, whole = 0, True
        while turns := [(each, done[each]) for each in range(len(program)) if done[each] < len(program[each])]:
            if number == len(path.nodes) and not path.reach(turns):
                whole = False
                break
            node = path.nodes[number]
            assert list(node.turns) == turns
            node.effect = replace(program[node.turn[0]][node.turn[1]])
            done[node.turn[0]] += 1
            number += 1
        if whole:
            found.append(tuple(path))
            share += path.share
        if not path.next():
            assert share + path.left_out == 1
            return found, path


def meetings(order: tuple[Turn, ...], program: list[list[Effect]]) -> frozenset[tuple[Turn, Turn]]:
    """What came before what, of turns for which it matters: the same for orders that are alike, and only for these."""
    return frozenset(
        (one, other)
        for one, other in combinations(order, 2)
        if one[0] == other[0] or not program[one[0]][one[1]].commutes(program[other[0]][other[1]])
    )


@given(programs)
def test_of_those_that_are_alike_one_is_played(program: list[list[Effect]]) -> None:
    every, _ = played(program, alike=False)
    some, _ = played(program, alike=True)
    assert len(every) == len(set(every))
    assert set(some) <= set(every)
    assert sorted(map(sorted, {meetings(each, program) for each in every})) == sorted(
        sorted(meetings(each, program)) for each in some
    )


def test_what_commutes() -> None:
    reads, writes, other = Effect({"x"}), Effect({"x"}, {"x"}), Effect({"y"}, {"y"})
    shows, begins = Effect(published={"x"}), Effect(begun=True)
    for one, another, expected in [
        (reads, reads, True),
        # It sees nothing of what is not committed.
        (reads, writes, True),
        (writes, writes, False),
        (writes, other, True),
        (reads, shows, False),
        (writes, shows, False),
        (other, shows, True),
        (shows, shows, False),
        # The time of a transaction is compared with what others have written down.
        (begins, begins, False),
        (begins, writes, False),
        (begins, reads, True),
        (Effect(unknown=True), Effect(), False),
    ]:
        assert one.commutes(another) is another.commutes(one) is expected
