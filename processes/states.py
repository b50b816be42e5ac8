"""The words for what a process, a task and a decision are at. Pure."""

from __future__ import annotations

import enum


class ProcessState(enum.StrEnum):
    #: Its row is there, and nothing else.
    REGISTERED = "REGISTERED"
    ACTIVE = "ACTIVE"
    FINISHED = "FINISHED"
    #: A task of it is broken, or its time is over; its other branches go on.
    BROKEN = "BROKEN"
    ABORTED = "ABORTED"


class TaskState(enum.StrEnum):
    #: Waits for other tasks.
    PENDING = "PENDING"
    #: Has a decision that is queued or in work.
    READY = "READY"
    #: Has decided that its value is that of another task, which has not finished.
    FOLLOWS = "FOLLOWS"
    FINISHED = "FINISHED"
    BROKEN = "BROKEN"
    ABORTED = "ABORTED"


class DecisionState(enum.StrEnum):
    QUEUED = "QUEUED"
    WORK = "WORK"
    FINISH = "FINISH"


#: Nothing more is done of them.
ENDED = (ProcessState.FINISHED, ProcessState.ABORTED)
