"""Why a process stands, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.cli.output import span
from processes.shown import BrokenShown, Shown, TaskShown
from processes.states import DecisionState, ProcessState, TaskState
from recovery.explaining import COUNTED, Look, QueueLook, Reason, explain, told
from recovery.findings import Case, Finding, Verdict, verdict
from recovery.rules import Action, Rule

NOW = datetime(2030, 7, 1, 12, tzinfo=UTC)
QUEUE = "actor.ship"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def ship(number: int = 2, **words: Any) -> TaskShown:
    given: dict[str, Any] = {"state": TaskState.READY, "decision": DecisionState.QUEUED, "due_at": ago(180)}
    return TaskShown(number, "ship", arguments="{}", created_at=ago(600), **(given | words))


def shown(*tasks: TaskShown, **words: Any) -> Shown:
    given: dict[str, Any] = dict.fromkeys(("error", "custom_id", "idempotency_key", "result", "begun_at", "ended_at"))
    given |= {"state": ProcessState.ACTIVE, "priority": 0, "attributes": {}, "arguments": "{}", "at": NOW}
    times = {"registered_at": ago(600), "deadline_at": ago(10)}
    return Shown(17, "fulfil", **(given | times | words), tasks=tasks)


def why(case: Case, *tasks: TaskShown, queue: QueueLook | None = None, **look: Any) -> Reason:
    numbers = tuple(task.number for task in tasks if task.state in (TaskState.READY, TaskState.BROKEN))
    finding = Finding(case, numbers, QUEUE if queue is not None else None)
    [reason] = explain(shown(*tasks), [finding], Look(NOW, {QUEUE: queue or QueueLook()}, **look), span)
    assert (reason.finding, reason.tasks, reason.queue) == (case, numbers, finding.queue)
    return reason


WORK: dict[str, Any] = {"decision": DecisionState.WORK, "claimed_at": ago(12), "until": ago(-48), "worker": "w/1"}


@pytest.mark.parametrize(
    ("case", "queue", "says", "then"),
    [
        (Case.NOBODY_POLLS, QueueLook(), "no live worker takes the queue of ship", "takes actor.ship: tidemill doctor"),
        (Case.NOBODY_POLLS, QueueLook(removed=True), "not declared any more", "a release declares it"),
        (
            *(Case.NOBODY_POLLS, QueueLook(outside=True, polled_at=ago(300))),
            *("nobody polls for ship since 5min", "tidemill console"),
        ),
        (Case.QUEUE_PAUSED, QueueLook(), "ship is blocked", "tidemill actor unblock ship"),
        (
            *(Case.QUEUE_RESTS, QueueLook(rests_why="no answer", rests_until=ago(-8))),
            *("ship rests: no answer", "tried again in 8s"),
        ),
        (Case.SERVER_WAS_OFF, QueueLook(slots=1), "the database was off", "workers ask again"),
        (Case.BEHIND, QueueLook(slots=2, ahead=7, in_work=2), "behind 7 others", "its turn comes: 2 slots, 2 in work"),
        (Case.BEHIND, QueueLook(ahead=1), "behind 1 other in the queue of ship", "who polls for it"),
        (Case.BEHIND, QueueLook(slots=1, ahead=COUNTED + 1), "behind more than 10000 others", "1 slot"),
        (
            Case.BEHIND,
            QueueLook(slots=4, in_work=3, max_parallel=3),
            "3 may be in work at once, and are",
            "one of them",
        ),
        (Case.BEHIND, QueueLook(slots=4, ahead=30, rate=0.5), "0.5 are begun in a second", "in 1min or so"),
        (Case.OVERTAKEN, QueueLook(slots=1, ahead=2), "later ones were taken first", "its turn comes"),
    ],
)
def test_what_waits_in_its_queue(case: Case, queue: QueueLook, says: str, then: str) -> None:
    # R4 (1) to (3), R6
    reason = why(case, ship(2), ship(3, due_at=ago(90)), queue=queue)
    assert says in reason.says
    assert then in reason.next
    assert reason.since == ago(180)
    assert told(reason).startswith("task 2, 3: ")


@pytest.mark.parametrize(
    ("task", "queue", "says", "then", "since"),
    [
        (ship(due_at=ago(-90), ready_at=ago(30)), {}, "2030-07-01 12:01:30 UTC", "handed out in 1min 30s", 30),
        (
            ship(due_at=ago(-60), failures=2, error="ApiError: 503", claimed_at=ago(9)),
            *({}, "failed 2 times, and waits before it is tried again: ApiError: 503", "tried again in 1min", 9),
        ),
    ],
)
def test_what_waits_for_a_time(task: TaskShown, queue: dict[str, Any], says: str, then: str, since: float) -> None:
    reason = why(Case.NOT_DUE, task, queue=QueueLook(**queue))
    assert says in reason.says
    assert (reason.next, reason.since) == (then, ago(since))
    both = why(Case.NOT_DUE, task, replace(task, number=3, due_at=ago(-900)), queue=QueueLook(**queue))
    assert both.next == f"{then}; 1 more later"


@pytest.mark.parametrize(
    ("task", "queue", "says", "then"),
    [
        (
            {},
            {},
            "in work by w/1",
            "the answer is due in 48s; after that it is handed out again, 10 more times at most",
        ),
        ({"attempts": 2, "restarts": 9}, {}, "in work by w/1, handed out 2 times", "1 more time at most"),
        ({"restarts": 10}, {}, "in work", "after that it is broken"),
        ({}, {"restart_after_work_timeout": False}, "in work", "after that that is an error like any other"),
    ],
)
def test_what_is_in_work(task: dict[str, Any], queue: dict[str, Any], says: str, then: str) -> None:
    # P3, P6
    reason = why(Case.IN_WORK, ship(**(WORK | task)), queue=QueueLook(**queue))
    assert reason.says == says or (reason.says.startswith(says) and len(says) < 10)
    assert reason.next.endswith(then)
    assert reason.since == ago(12)


def test_whose_time_is_over() -> None:
    # R2, P6
    late = why(Case.OVERDUE, ship(**(WORK | {"until": ago(5)})), queue=QueueLook())
    assert (late.says, late.since) == ("its answer did not come in time", ago(5))
    unseen = why(Case.OVERDUE, ship(deadline_at=ago(7)), queue=QueueLook())
    assert (unseen.says, unseen.since) == ("its task_timeout is over", ago(7))


def test_what_is_broken_and_what_waits_for_it() -> None:
    broken = BrokenShown(ago(50), "KeyError", "'o-1'", fingerprint="f" * 16)
    tasks = [
        ship(2, state=TaskState.BROKEN, broken=broken),
        ship(3, state=TaskState.BROKEN, broken=replace(broken, at=ago(70))),
        ship(4, state=TaskState.PENDING, sources=(2, 3)),
        ship(5, state=TaskState.FOLLOWS, value_of=4),
        ship(6, state=TaskState.FINISHED, sources=(2,)),
    ]
    reason = why(Case.TASK_BROKEN, *tasks)
    assert reason.says == "broken: KeyError: 'o-1', and 1 more; 2 tasks wait for that"
    assert reason.next.endswith("tidemill process restart 17 --from 2")
    assert reason.since == ago(70)
    rule = Rule("no-order", "it was deleted", Action.ABORT, type="KeyError")
    assert why(Case.TASK_BROKEN, *tasks, rules=[rule]).next == (
        "known as no-order: it was deleted; proposed: tidemill process abort 17"
    )


def test_the_process_as_a_whole() -> None:
    # R5
    soon = why(Case.NOT_YET_BEGUN, looked_at=ago(-30))
    assert (soon.says, soon.since) == ("registered, and not begun yet", ago(600))
    assert soon.next == "a worker for fulfil begins it, or recovery in 30s"
    assert why(Case.NEVER_BEGUN).next == "the next sweep begins it"
    assert why(Case.OVER_TIME).since == ago(10)


@pytest.mark.parametrize("case", [each for each in Case if verdict(each) is not Verdict.DIAGNOSIS])
def test_what_is_wrong_says_who_puts_it_right(case: Case) -> None:
    # R3, R4 (4) to (7)
    reason = why(case, ship(2), looked_at=ago(-30), changed_at=ago(200))
    assert reason.says
    if case in (Case.NEVER_BEGUN, Case.OVER_TIME):
        return
    assert reason.since == ago(200)
    if verdict(case) is Verdict.BROKEN:
        assert reason.next.endswith("tidemill process restart 17")
    else:
        assert reason.next.startswith("recovery looks at it in 30s: ")
        assert reason.next.endswith("tidemill recover operation start recover --process 17")


def test_what_somebody_has_to_do_something_about_comes_first() -> None:
    found = [
        Finding(each, (2,), QUEUE)
        for each in (Case.IN_WORK, Case.WAITS, Case.BEHIND, Case.TASK_BROKEN, Case.NOT_QUEUED)
    ]
    reasons = explain(shown(ship()), found, Look(NOW), span)
    order = [Case.NOT_QUEUED, Case.TASK_BROKEN, Case.BEHIND, Case.IN_WORK]
    assert [each.finding for each in reasons] == order
    # That others wait is no reason, unless there is no other.
    assert [each.finding for each in explain(shown(ship()), [Finding(Case.WAITS, (2,))], Look(NOW), span)] == [
        Case.WAITS
    ]
    assert explain(shown(ship()), [], Look(NOW), span) == ()


@pytest.mark.parametrize("case", list(Case))
def test_whatever_is_not_known_of_its_tasks_it_is_told(case: Case) -> None:
    """A task that is gone is not among those that are shown."""
    [reason] = explain(shown(), [Finding(case, (9,), QUEUE)], Look(NOW), span)
    assert reason.says
    assert reason.next
