"""Orders that differ only in turns that come to the same either way round: one of them is played.

A depth first search with sleep sets: once a turn has been tried, those tried after it need not be followed by it, as
long as nothing comes between that meets it. Every order is then equal to one that is played but for neighbours that
commute, so no outcome is left out.

Two turns commute if neither publishes what the other names, they write to no table in common, and what either of them
takes from the clock cannot be told from what the other does. What a session writes and has not committed, nobody
reads: it is only in the way of who writes there too. A turn at which somebody comes to wait for a lock, or stops
waiting, commutes with none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Generic, TypeVar

Turn = TypeVar("Turn", bound=Hashable)


@dataclass
class Effect:
    """What a turn did, from one stop of its session to the next."""

    named: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    #: What others see, or may lock, from now on.
    published: set[str] = field(default_factory=set)
    #: A transaction began, whose time is `now()`.
    begun: bool = False
    #: More than its statements say.
    unknown: bool = False

    def commutes(self, other: Effect) -> bool:
        return not (self.unknown or other.unknown) and not any(
            one.written & another.written
            or one.published & (another.named | another.published)
            or (one.begun and (another.begun or another.written))
            for one, another in ((self, other), (other, self))
        )


@dataclass
class Node(Generic[Turn]):
    """Where several turns were possible."""

    turns: Sequence[Turn]
    #: Those that need not be tried here, and what they did where they were tried.
    asleep: dict[Turn, Effect]
    #: Which one is tried.
    index: int = 0
    #: And what it did.
    effect: Effect = field(default_factory=Effect)

    @property
    def turn(self) -> Turn:
        return self.turns[self.index]

    def left(self) -> bool:
        """Whether there is one to try, from this one on."""
        while self.index < len(self.turns) and self.turn in self.asleep:
            self.index += 1
        return self.index < len(self.turns)


class Path(Generic[Turn]):
    """The order that is being played. `alike`: one of those that are alike is enough."""

    def __init__(self, *, alike: bool = False) -> None:
        self._alike = alike
        self.nodes: list[Node[Turn]] = []
        #: Of what was left out: where n turns are possible, each is an n-th of all orders from there on.
        self.left_out = Fraction(0)
        #: How often that was seen only after some turns.
        self.in_vain = 0

    def __iter__(self) -> Iterator[Turn]:
        return (each.turn for each in self.nodes if each.index < len(each.turns))

    @property
    def share(self) -> Fraction:
        return Fraction(1, prod(len(each.turns) for each in self.nodes))

    def reach(self, turns: Sequence[Turn]) -> bool:
        """Where nobody has been; False, if all that may come next comes elsewhere."""
        asleep: dict[Turn, Effect] = {}
        if self._alike and self.nodes:
            last = self.nodes[-1]
            asleep = {turn: did for turn, did in last.asleep.items() if turn in turns and did.commutes(last.effect)}
        self.left_out += self.share * Fraction(len(asleep), len(turns))
        self.nodes.append(Node(turns, asleep))
        found = self.nodes[-1].left()
        self.in_vain += not found
        return found

    def next(self) -> bool:
        """On to the next order; False, if that was the last."""
        while self.nodes:
            node = self.nodes[-1]
            if node.index < len(node.turns):
                node.asleep[node.turn] = node.effect
                if node.left():
                    node.effect = Effect()
                    return True
            self.nodes.pop()
        return False
