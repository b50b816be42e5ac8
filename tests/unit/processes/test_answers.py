"""What is made of an answer: every case, against the rules in other words."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.errors import BadRequest, TooLarge
from processes.answers import (
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    Again,
    Answer,
    Break,
    Failed,
    Handed,
    Refuse,
    Standing,
    Take,
    Value,
    failure,
    judge,
)
from processes.definition import Retry
from processes.states import DecisionState, ProcessState

MINE, OTHER = uuid.uuid4(), uuid.uuid4()
OVER = (ProcessState.FINISHED, ProcessState.ABORTED)
VALUE, ACCEPTED, FAILED, FINAL = "value", "accepted", "failed", "final"
OUTCOMES: dict[str, Value | Failed] = {
    VALUE: Value("1"),
    ACCEPTED: Failed(("Sub", "Accepted", "Exception"), "told"),
    FAILED: Failed(("Gone", "Exception"), "told"),
    FINAL: Failed(("Gone", "Exception"), "told", final=True),
}
RETRY = Retry(max_attempts=3, delay="10s", factor=3)
CASES = list(
    itertools.product(
        *(ProcessState, DecisionState, (True, False), (MINE, OTHER, None)),
        *((True, False), (True, False), OUTCOMES, (0, 1, 2)),
    )
)


def expected(
    process: ProcessState,
    decision: DecisionState,
    same_epoch: bool,  # noqa: FBT001
    given: uuid.UUID | None,
    accept_first: bool,  # noqa: FBT001
    broken: bool,  # noqa: FBT001
    outcome: str,
    failures: int,
) -> str:
    """P5: the first good result for an unfinished task, or, if it is not to be the first, that of whoever has it now; a
    late failure is only recorded. P9: an accepted failure is a result, another one is tried again while it may be."""
    unfinished = decision in (DecisionState.QUEUED, DecisionState.WORK) or broken
    if process in OVER or not same_epoch or not unfinished:
        return "refused"
    holder = {DecisionState.QUEUED: None, DecisionState.WORK: MINE}
    of_the_holder = decision in holder and given == holder[decision]
    if outcome == VALUE:
        return "taken" if accept_first or of_the_holder else "refused"
    if not of_the_holder:
        return "refused"
    if outcome == ACCEPTED:
        return "taken"
    return "again" if outcome == FAILED and failures + 1 < RETRY.max_attempts else "broken"


def test_every_case() -> None:
    # P5, P9
    seen = set()
    for case in CASES:
        process, decision, same_epoch, given, accept_first, broken, outcome, failures = case
        standing = Standing(
            process=process,
            decision=decision,
            epoch=4,
            pass_key=MINE if decision is DecisionState.WORK else None,
            failures=failures,
            broken=broken,
            accept_first=accept_first,
            retry=RETRY.words(),
            fail_types=("Accepted",),
        )
        answer = Answer(Handed(1, 2, 4 if same_epoch else 3, given), OUTCOMES[outcome])
        verdict = judge(answer, standing)
        words = {Take: "taken", Again: "again", Break: "broken", Refuse: "refused"}
        assert words[type(verdict)] == expected(*case), case
        if isinstance(verdict, Again):
            assert verdict.wait == timedelta(seconds=10 * 3**failures)
        if isinstance(verdict, Refuse):
            assert verdict.why
        seen.add(type(verdict))
    assert seen == {Take, Again, Break, Refuse}


def _standing(decision: DecisionState = DecisionState.WORK, *, broken: bool = False, first: bool = False) -> Standing:
    key = MINE if decision is DecisionState.WORK else None
    return Standing(ProcessState.ACTIVE, decision, 0, key, 0, broken, first, RETRY.words(), ())


@pytest.mark.parametrize(
    ("outcome", "standing", "why"),
    [
        (Value("1"), _standing(), "handed out again since"),
        (Value("1"), _standing(DecisionState.QUEUED), "handed out again since"),
        (Value("1"), _standing(DecisionState.FINISH, broken=True), "broken meanwhile"),
        (Value("1"), _standing(DecisionState.FINISH, first=True), "finished already"),
        (OUTCOMES[FAILED], _standing(first=True), "a late failure"),
    ],
)
def test_a_refusal_says_why(outcome: Value | Failed, standing: Standing, why: str) -> None:
    verdict = judge(Answer(Handed(1, 2, 0, OTHER), outcome), standing)
    assert isinstance(verdict, Refuse)
    assert why in verdict.why


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_a_pass_that_somebody_made_up_is_of_no_hand_out(outcome: Value | Failed) -> None:
    # P5: an earlier one counts, where there was one.
    once = replace(_standing(first=True), troubled=False)
    verdict = judge(Answer(Handed(1, 2, 0, OTHER), outcome, from_outside=True), once)
    assert isinstance(verdict, Refuse)
    assert "not with this pass" in verdict.why
    assert not isinstance(judge(Answer(Handed(1, 2, 0, MINE), outcome, from_outside=True), once), Refuse)
    if isinstance(outcome, Value):
        again = replace(once, troubled=True)
        assert isinstance(judge(Answer(Handed(1, 2, 0, OTHER), outcome, from_outside=True), again), Take)


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_of_a_task_that_the_database_has_lost_nothing_is_taken(outcome: Value | Failed) -> None:
    # P5: after an older state was restored, another task may have its numbers, and be in work with them.
    lost, made = datetime(2026, 7, 1, 12, tzinfo=UTC), datetime(2026, 7, 1, 13, tzinfo=UTC)
    standing = replace(_standing(first=True), made_at=made)
    verdict = judge(Answer(Handed(1, 2, 0, OTHER, made_at=lost), outcome), standing)
    assert isinstance(verdict, Refuse)
    assert "another task" in verdict.why
    assert not isinstance(judge(Answer(Handed(1, 2, 0, MINE, made_at=made), outcome), standing), Refuse)


class _Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_a_failure_is_told_by_the_names_of_its_classes_and_its_message() -> None:
    # P9
    found = failure(TooLarge("5: too many"))
    assert found.types[:2] == ("TooLarge", "BadRequest")
    assert "Exception" in found.types
    assert "BaseException" not in found.types
    assert (found.message, found.told) == ("5: too many", "TooLarge: 5: too many")
    assert found.final
    assert not failure(ValueError()).final
    assert failure(ValueError()).told == "ValueError"
    assert failure(_Mute()).types[0] == "_Mute"
    assert failure(KeyboardInterrupt()).types == ("KeyboardInterrupt",)


def test_a_long_failure_is_cut() -> None:
    try:
        raise ValueError("x" * 100_000)
    except ValueError as error:
        found = failure(error)
    assert (len(found.message), len(found.traceback or "")) == (MESSAGE_LIMIT, TRACEBACK_LIMIT)


def test_what_was_asked_for_wrongly_is_not_tried_again() -> None:
    answer = Answer(Handed(1, 2, 0, MINE), failure(BadRequest("no such thing")))
    assert judge(answer, _standing()) == Break()
