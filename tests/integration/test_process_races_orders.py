"""A late worker, the present one, a sweep and an operator at one task, in every order; beside a naive reading of P5."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from sqlalchemy.orm import Session

from app.errors import BadRequest
from processes import operate, preferences
from processes.answers import Handed
from processes.states import ProcessState
from tests.kit import process_rows as r

RESTARTED = "an operator has restarted the task since it was handed out"
LATE = "a late failure: the task was taken back or handed out again since"


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


@dataclass
class Naive:
    """The only task that is left of its process: when it has finished, so has the process."""

    accept_first: bool
    state: ProcessState = ProcessState.ACTIVE
    held: bool = True
    restarted: bool = False
    value: str | None = None

    def answer(self, who: str, *, good: bool) -> str:
        if self.state in (ProcessState.FINISHED, ProcessState.ABORTED):
            return f"the process is {self.state}"
        if self.restarted:
            return RESTARTED
        mine = who == "present" and self.held
        if not good and not mine:
            return LATE
        if good and not mine and not self.accept_first:
            broken = self.state is ProcessState.BROKEN
            return "the task was broken meanwhile" if broken else "the task was handed out again since"
        self.held = False
        self.state, self.value = (ProcessState.FINISHED, who) if good else (ProcessState.BROKEN, None)
        return "taken" if good else "broken"

    def operator(self, does: str) -> bool:
        if does == "abort" and self.state is ProcessState.FINISHED:
            return False
        self.held, self.restarted = False, does == "restart"
        self.state = ProcessState.ACTIVE if self.restarted else ProcessState.ABORTED
        self.value = None if self.restarted else self.value
        return True


def _operator_says_yes(does: str, one: int) -> bool:
    try:
        operate.restart(one, 2) if does == "restart" else operate.abort(one)
    except BadRequest:
        return False
    return True


@pytest.mark.parametrize("accept_first", [True, False])
@pytest.mark.parametrize("does", ["restart", "abort"])
def test_every_order(does: str, *, accept_first: bool, session: Session) -> None:
    # P5 P4 R2
    preferences.configure("toil", {"accept_first": accept_first})
    for goods in itertools.product((True, False), repeat=2):
        good = dict(zip(("late", "present"), goods, strict=True))
        # With the sweep where it may come out otherwise: 24 orders for 6.
        sweeps = ("sweep",) * (does == "restart" and len({*goods}) == 1)
        for order in itertools.permutations(("late", "present", does, *sweeps)):
            _in_this_order(order, good, does, Naive(accept_first), session)
        assert r.check(session) == {}, good


def _in_this_order(order: tuple[str, ...], good: dict[str, bool], does: str, naive: Naive, session: Session) -> None:
    one = r.one_of_toil()
    held: dict[str, Handed] = {"late": r.handed_out("toil", "w/late")}
    r.let_pass(where="state = 'WORK'")
    r.sweep()
    r.due_again()
    held["present"] = r.handed_out("toil", "w/present")
    for number, event in enumerate(order):
        case = (order[: number + 1], good)
        if event == "sweep":
            r.let_pass(where="state = 'WORK'")
            assert r.sweep().restarted == naive.held, case
            naive.held = False
        elif event == does:
            assert _operator_says_yes(does, one) == naive.operator(does), case
        else:
            answer = r.well(held[event], event) if good[event] else r.badly(held[event], final=True)
            assert r.word(answer) == naive.answer(event, good=good[event]), case
        assert r.state(session, one) is naive.state, case
        assert r.task(session, one, 2).result == naive.value, case
    if naive.state is ProcessState.ACTIVE:
        # It goes on, and nobody's answer from before is in the way.
        r.due_again()
        assert r.word(r.well(r.handed_out("toil", "w/fresh"), "fresh")) == "taken", order
        assert r.state(session, one) is ProcessState.FINISHED
