"""The states of everything that is claimed or carried on, and what moves it from one to another. Pure.

A test records the moves of real work, and finds each of them here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from app.jobs.model import JobState
from processes import DecisionState, ProcessState, TaskState
from stages.model import VisitState
from triggers.model import RunState


class Outside(enum.StrEnum):
    """Where there is no row: before it is written, and after it was deleted."""

    NEW = "(new)"
    GONE = "(gone)"


State = enum.StrEnum


@dataclass(frozen=True)
class Move:
    """From any of the sources to the target."""

    sources: tuple[State, ...]
    target: State
    why: str


@dataclass(frozen=True)
class Machine:
    """`table` is that of the schema `tidemill` whose rows are in these states."""

    name: str
    table: str
    about: str
    states: type[enum.StrEnum]
    moves: tuple[Move, ...]

    @property
    def columns(self) -> tuple[State, ...]:
        named = {state for move in self.moves for state in (*move.sources, move.target)}
        gone = [Outside.GONE] if Outside.GONE in named else []
        return (Outside.NEW, *self.states, *gone)

    def pairs(self) -> set[tuple[str, str]]:
        return {(source.value, move.target.value) for move in self.moves for source in move.sources}


NEW, GONE = Outside.NEW, Outside.GONE

JOB = Machine(
    "A job",
    "job",
    "[Life of a job](../concepts/jobs.md)",
    JobState,
    (
        Move((NEW,), JobState.WAITING, "the producer's transaction commits"),
        Move((JobState.WAITING,), JobState.RUNNING, "a worker claims it"),
        Move(
            (JobState.RUNNING,),
            JobState.WAITING,
            "it is tried again later; its worker was stopped, or gave no sign of life",
        ),
        Move((JobState.RUNNING,), GONE, "it is done; or a newer job with its key took its place"),
        Move((JobState.RUNNING,), JobState.PARKED, "it failed for the last time"),
        Move((JobState.PARKED,), JobState.WAITING, "an operator retries it"),
        Move((JobState.WAITING, JobState.PARKED), GONE, "it is cancelled; or has expired when a worker takes it"),
    ),
)

VISIT = Machine(
    "A visit of a stage",
    "stage_visit",
    "[Stages](../concepts/stages.md)",
    VisitState,
    (
        Move((NEW,), VisitState.WAITING, "the entity changed, a timer was set, or somebody offered it"),
        Move((VisitState.WAITING,), VisitState.RUNNING, "a worker claims it"),
        Move((VisitState.RUNNING,), GONE, "the stage has nothing more to do with the entity"),
        Move(
            (VisitState.RUNNING,),
            VisitState.WAITING,
            "it set a timer, was asked for again, or is tried again; its worker was stopped, or gave no sign of life",
        ),
        Move((VisitState.RUNNING,), VisitState.PARKED, "it failed too often, or stages go round in a circle"),
        Move((VisitState.PARKED,), VisitState.WAITING, "an operator redrives it"),
        Move((VisitState.WAITING, VisitState.PARKED), GONE, "it, or its entity, is deleted"),
    ),
)

RUN = Machine(
    "A run of a reactive task",
    "run",
    "[Life of a reactive run](../concepts/reactive-runs.md)",
    RunState,
    (
        Move((NEW,), RunState.WAITING, "the trigger fired, or an operator asked for it"),
        Move((RunState.WAITING,), RunState.RUNNING, "a worker claims it"),
        Move((RunState.RUNNING,), RunState.DONE, "the function returned"),
        Move(
            (RunState.RUNNING,),
            RunState.WAITING,
            "it raised, and is tried again; its worker was stopped, or gave no sign of life",
        ),
        Move((RunState.RUNNING,), RunState.FAILED, "it raised too often in a row; or was started by hand, and raised"),
        Move((RunState.RUNNING,), RunState.LAPSED, "its trigger does not hold any more"),
        Move(
            (RunState.WAITING, RunState.RUNNING),
            RunState.CANCELLED,
            "the function gave up, an operator paused the task, or nobody declares it any more",
        ),
        Move((RunState.DONE, RunState.FAILED, RunState.LAPSED, RunState.CANCELLED), GONE, "it is older than is kept"),
    ),
)

PROCESS = Machine(
    "A process",
    "process",
    "[Processes](../concepts/processes.md)",
    ProcessState,
    (
        Move((NEW,), ProcessState.REGISTERED, "the transaction that started it commits"),
        Move((ProcessState.REGISTERED,), ProcessState.ACTIVE, "a worker, or recovery, begins it"),
        Move((ProcessState.ACTIVE, ProcessState.BROKEN), ProcessState.FINISHED, "every task has finished"),
        Move(
            (ProcessState.REGISTERED, ProcessState.ACTIVE),
            ProcessState.BROKEN,
            "a task is broken, process_timeout is over, or it cannot be carried on",
        ),
        Move((ProcessState.BROKEN,), ProcessState.ACTIVE, "a late good answer, or an operator's restart"),
        Move((ProcessState.FINISHED, ProcessState.ABORTED), ProcessState.ACTIVE, "an operator restarts it"),
        Move((ProcessState.FINISHED, ProcessState.ABORTED), ProcessState.BROKEN, "the same, while a task stays broken"),
        Move(
            (ProcessState.ACTIVE, ProcessState.BROKEN),
            ProcessState.REGISTERED,
            "it was found inconsistent, and its decider says to begin anew",
        ),
        Move(
            (ProcessState.REGISTERED, ProcessState.ACTIVE, ProcessState.BROKEN),
            ProcessState.ABORTED,
            "an operator aborts it",
        ),
        Move((NEW,), ProcessState.ACTIVE, "a restart makes a copy of another one"),
        Move((ProcessState.FINISHED, ProcessState.ABORTED), GONE, "its retention is over"),
    ),
)

TASK = Machine(
    "A task of a process",
    "task",
    "[Processes](../concepts/processes.md)",
    TaskState,
    (
        Move((NEW,), TaskState.PENDING, "a decider asked for it, and it waits for others"),
        Move((NEW,), TaskState.READY, "a decider asked for it, and it waits for nothing"),
        Move((TaskState.PENDING,), TaskState.READY, "what it waits for has finished"),
        Move((TaskState.READY, TaskState.BROKEN), TaskState.FINISHED, "a good answer, or an accepted failure"),
        Move((TaskState.READY, TaskState.BROKEN), TaskState.FOLLOWS, "a decider returned the promise of another task"),
        Move((TaskState.FOLLOWS,), TaskState.FINISHED, "that task has finished"),
        Move((TaskState.READY,), TaskState.BROKEN, "it failed for good"),
        Move(
            (TaskState.FOLLOWS, TaskState.FINISHED, TaskState.BROKEN, TaskState.ABORTED),
            TaskState.READY,
            "an operator restarts it, or what it rests on",
        ),
        Move(
            (TaskState.READY, TaskState.FINISHED, TaskState.BROKEN, TaskState.ABORTED),
            TaskState.PENDING,
            "the same, while it waits for others",
        ),
        Move((TaskState.FINISHED, TaskState.ABORTED), TaskState.FOLLOWS, "the same, of what its value rests on"),
        Move(
            (TaskState.PENDING, TaskState.READY, TaskState.FOLLOWS, TaskState.BROKEN),
            TaskState.ABORTED,
            "an operator aborts the process",
        ),
        Move((NEW,), TaskState.FINISHED, "a restart makes a copy of the process, with this result"),
        Move((NEW,), TaskState.FOLLOWS, "the same, with the value of another task"),
        Move(tuple(TaskState), GONE, "what had asked for it is restarted, or its process is forgotten"),
    ),
)

DECISION = Machine(
    "A decision: a task as it is claimed",
    "decision",
    "[Processes](../concepts/processes.md)",
    DecisionState,
    (
        Move((NEW,), DecisionState.QUEUED, "its task is ready"),
        Move((DecisionState.QUEUED,), DecisionState.WORK, "an actor takes it"),
        Move((DecisionState.WORK,), DecisionState.FINISH, "its answer is accepted"),
        Move(
            (DecisionState.WORK,),
            DecisionState.QUEUED,
            "it failed, and is tried again; work_timeout is over; its worker was stopped",
        ),
        Move((DecisionState.QUEUED,), DecisionState.FINISH, "task_timeout is over; a late good answer; aborted"),
        Move((DecisionState.FINISH,), DecisionState.QUEUED, "an operator restarts it"),
        Move((NEW,), DecisionState.FINISH, "a restart makes a copy of the process, with this result"),
        Move(tuple(DecisionState), GONE, "its task is gone"),
    ),
)

MACHINES = (JOB, RUN, VISIT, PROCESS, TASK, DECISION)
