"""What can be found of a process, by name, and what that means. Pure.

A *diagnosis* says why nothing moves, and nothing is done about it. What is *repairable* is put right by what the other
rows say. What is *broken* has lost what no other row says: the process is marked so, or restarted where its type says
so.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import assert_never


class Verdict(enum.StrEnum):
    HARMLESS = "harmless"
    DIAGNOSIS = "diagnosis"
    REPAIRABLE = "repairable"
    BROKEN = "broken"


class Case(enum.StrEnum):
    # R3: a part is lost.
    PROCESS_LOST = "process_lost"
    TASK_LOST = "task_lost"
    VALUE_LOST = "value_lost"
    #: It waits for more than any row says.
    WAITS_FOR_NOTHING = "waits_for_nothing"
    # R4, in its order: (1) to (3) are a backlog, however long.
    SERVER_WAS_OFF = "server_was_off"
    NOBODY_POLLS = "nobody_polls"
    BEHIND = "behind"
    DECIDED_NOT_APPLIED = "decided_not_applied"
    NOT_QUEUED = "not_queued"
    NOT_CLAIMABLE = "not_claimable"
    NO_START_TASK = "no_start_task"
    # R5
    ALL_DONE = "all_done"
    NEVER_BEGUN = "never_begun"
    OVER_TIME = "over_time"
    # Why it stands, where nothing is wrong.
    QUEUE_PAUSED = "queue_paused"
    QUEUE_RESTS = "queue_rests"
    OVERTAKEN = "overtaken"
    NOT_DUE = "not_due"
    IN_WORK = "in_work"
    OVERDUE = "overdue"
    WAITS = "waits"
    TASK_BROKEN = "task_broken"
    NOT_YET_BEGUN = "not_yet_begun"
    # Rows that disagree.
    GRAPH_LOST = "graph_lost"
    EDGE_LOST = "edge_lost"
    NOT_ADVANCED = "not_advanced"
    TOO_EARLY = "too_early"
    WRONG_COUNTS = "wrong_counts"
    OPEN_DECISION = "open_decision"
    UNWATCHED_WORK = "unwatched_work"
    NOT_TOLD = "not_told"
    TOLD_IN_VAIN = "told_in_vain"
    ENDED_TOO_EARLY = "ended_too_early"
    NOT_BROKEN = "not_broken"
    BROKEN_FOR_NOTHING = "broken_for_nothing"
    WRONG_END = "wrong_end"
    WRONG_CLOCK = "wrong_clock"
    NOT_ABORTED = "not_aborted"


def verdict(case: Case) -> Verdict:
    match case:
        case Case.PROCESS_LOST | Case.TASK_LOST | Case.VALUE_LOST | Case.WAITS_FOR_NOTHING | Case.OVER_TIME:
            return Verdict.BROKEN
        case Case.SERVER_WAS_OFF | Case.NOBODY_POLLS | Case.BEHIND | Case.QUEUE_PAUSED | Case.QUEUE_RESTS:
            return Verdict.DIAGNOSIS
        case Case.OVERTAKEN | Case.NOT_DUE | Case.IN_WORK | Case.OVERDUE | Case.WAITS | Case.TASK_BROKEN:
            return Verdict.DIAGNOSIS
        case Case.NOT_YET_BEGUN:
            return Verdict.DIAGNOSIS
        case Case.DECIDED_NOT_APPLIED | Case.NOT_QUEUED | Case.NOT_CLAIMABLE | Case.NO_START_TASK:
            return Verdict.REPAIRABLE
        case Case.ALL_DONE | Case.NEVER_BEGUN | Case.GRAPH_LOST | Case.EDGE_LOST | Case.NOT_ADVANCED | Case.TOO_EARLY:
            return Verdict.REPAIRABLE
        case Case.WRONG_COUNTS | Case.OPEN_DECISION | Case.UNWATCHED_WORK | Case.NOT_TOLD | Case.TOLD_IN_VAIN:
            return Verdict.REPAIRABLE
        case Case.ENDED_TOO_EARLY | Case.NOT_BROKEN | Case.BROKEN_FOR_NOTHING | Case.WRONG_END | Case.WRONG_CLOCK:
            return Verdict.REPAIRABLE
        case Case.NOT_ABORTED:
            return Verdict.REPAIRABLE
        case _:
            assert_never(case)


#: What is wrong, in a sentence; what is done about it, or who does something.
WORDS: dict[Case, tuple[str, str]] = {
    Case.PROCESS_LOST: ("its process is gone", "what is left of it is ended"),
    Case.TASK_LOST: ("a task is gone that other rows name", "broken"),
    Case.VALUE_LOST: ("a task has finished, and its value is gone", "broken"),
    Case.WAITS_FOR_NOTHING: ("a task waits for something that no row names", "broken"),
    Case.SERVER_WAS_OFF: ("the database was off, and nobody has asked for work since", "workers ask again"),
    Case.NOBODY_POLLS: ("no live worker takes the queue, and nobody polls it", "start a worker"),
    Case.BEHIND: ("others of its queue were ready before it", "its turn comes"),
    Case.DECIDED_NOT_APPLIED: ("it was decided, and its graph has it unfinished", "applied"),
    Case.NOT_QUEUED: ("it is ready, and was not queued", "queued"),
    Case.NOT_CLAIMABLE: ("it is queued where nobody claims it", "queued"),
    Case.NO_START_TASK: ("its first task was never made", "made and queued"),
    Case.ALL_DONE: ("all tasks have finished, and the process has not", "finished"),
    Case.NEVER_BEGUN: ("it was registered, and never begun", "begun"),
    Case.OVER_TIME: ("it has not finished within its process_timeout", "broken"),
    Case.QUEUE_PAUSED: ("its queue is paused, or its actor blocked", "an operator opens it"),
    Case.QUEUE_RESTS: ("what its queue needs does not answer", "it is tried again"),
    Case.OVERTAKEN: ("later ones of its queue were taken, as a higher priority is", "its turn comes"),
    Case.NOT_DUE: ("it is not to be handed out yet", "its time comes"),
    Case.IN_WORK: ("somebody does it", "the answer comes, or its time is over"),
    Case.OVERDUE: ("its time is over", "the sweep of decisions looks at it"),
    Case.WAITS: ("it waits for other tasks", "these finish"),
    Case.TASK_BROKEN: ("the task is broken", "an operator restarts it"),
    Case.NOT_YET_BEGUN: ("it was registered a moment ago", "it is begun"),
    Case.GRAPH_LOST: ("its graph is gone", "made again from its tasks"),
    Case.EDGE_LOST: ("what it waits for is not among the edges", "put back, as the task names it"),
    Case.NOT_ADVANCED: ("what it waits for has finished, and it was not told", "told"),
    Case.TOO_EARLY: ("it was ready before what it waits for had finished", "waits again"),
    Case.WRONG_COUNTS: ("its graph does not count its tasks", "counted"),
    Case.OPEN_DECISION: ("a decision is open that nobody waits for", "ended"),
    Case.UNWATCHED_WORK: ("somebody has it, and nothing says until when", "queued"),
    Case.NOT_TOLD: ("a task is broken, and not listed as such", "listed"),
    Case.TOLD_IN_VAIN: ("a task is listed as broken, and is not", "taken from the list"),
    Case.ENDED_TOO_EARLY: ("it has ended, and its tasks have not", "goes on"),
    Case.NOT_BROKEN: ("a task is broken, and the process is not", "broken"),
    Case.BROKEN_FOR_NOTHING: ("it is broken, and no task of it is", "goes on"),
    Case.WRONG_END: ("its end is not what its state says", "set"),
    Case.WRONG_CLOCK: ("nothing says when recovery looks at it, or it has ended and something does", "set"),
    Case.NOT_ABORTED: ("it was aborted, and tasks of it were not", "aborted"),
}


@dataclass(frozen=True, order=True)
class Finding:
    case: Case
    #: The numbers of the tasks that it concerns; none: the process as a whole.
    tasks: tuple[int, ...] = ()
    #: Of a diagnosis: the queue that they are in.
    queue: str | None = None

    @property
    def verdict(self) -> Verdict:
        return verdict(self.case)

    @property
    def says(self) -> str:
        return WORDS[self.case][0]

    @property
    def cure(self) -> str:
        return WORDS[self.case][1]
