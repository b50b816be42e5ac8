"""A picture of each of the four paths: how work starts, who has it, and what is committed together."""

from __future__ import annotations

from website.ladder import Ladder, Step

PROGRAM, POSTGRES, SCHEDULER, WORKER = range(4)
WHO = ("your program", "Postgres", "scheduler or beat", "worker")


def _step(source: int, target: int, text: str) -> Step:
    return Step((source,), target, text)


JOB = Ladder(
    "The path of a job",
    WHO,
    (
        _step(PROGRAM, POSTGRES, "one transaction: your rows, and the job"),
        _step(POSTGRES, POSTGRES, "the job is waiting"),
        _step(PROGRAM, WORKER, "after the commit: a ticket, through the broker. It may be lost"),
        _step(POSTGRES, SCHEDULER, "what waits, and for how long"),
        _step(SCHEDULER, WORKER, "another ticket, where none came"),
        _step(WORKER, POSTGRES, "claims the best job of the queue: a pass and a deadline"),
        _step(POSTGRES, POSTGRES, "the job is running"),
        _step(WORKER, WORKER, "calls your Celery task, and extends the deadline meanwhile"),
        _step(WORKER, POSTGRES, "one transaction, with the pass: your effects, the job gone, its log written"),
    ),
)
TRIGGER = Ladder(
    "The path of a reactive run",
    WHO,
    (
        _step(PROGRAM, POSTGRES, "loaded data, and ctl.advance: how far it has got, in one transaction"),
        _step(POSTGRES, SCHEDULER, "the change, in the stream of changes"),
        _step(SCHEDULER, SCHEDULER, "an index names the tasks that it can affect; their triggers are evaluated"),
        _step(SCHEDULER, POSTGRES, "the trigger holds: a run, one at a time for each task"),
        _step(SCHEDULER, WORKER, "a ticket"),
        _step(WORKER, POSTGRES, "claims the run, by the limits and priorities of its pool"),
        _step(WORKER, WORKER, "checks the trigger again: these values are the window of the run"),
        _step(WORKER, POSTGRES, "one transaction: your effects, the run done, what it saw, what it advanced"),
        _step(POSTGRES, SCHEDULER, "the end of the run, and what it advanced, are changes too"),
    ),
)
STAGE = Ladder(
    "The path of a visit",
    WHO,
    (
        _step(PROGRAM, POSTGRES, "writes the entity: by the ORM, in bulk, or by plain SQL"),
        _step(
            POSTGRES,
            POSTGRES,
            "a trigger of the table: version + 1, and the system stage has a visit, in that transaction",
        ),
        _step(SCHEDULER, WORKER, "a ticket"),
        _step(WORKER, WORKER, "the system stage asks each stage: should_process?"),
        _step(WORKER, POSTGRES, "a visit for each stage that says yes"),
        _step(WORKER, POSTGRES, "claims a batch of one stage's visits; loads entities and states"),
        _step(WORKER, WORKER, "process(entity, state) of each; then the other stages are asked about what changed"),
        _step(
            WORKER,
            POSTGRES,
            "one transaction: entity if its version is the same, state, timer, the others' visits, events",
        ),
        _step(POSTGRES, SCHEDULER, "events, in order for each entity"),
        _step(SCHEDULER, PROGRAM, "the relay publishes them, once or more"),
    ),
)
PROCESS = Ladder(
    "The path of a process",
    WHO,
    (
        _step(PROGRAM, POSTGRES, "one transaction: your rows, and the process, REGISTERED"),
        _step(SCHEDULER, POSTGRES, "begins it: its first task, and a decision that is QUEUED"),
        _step(SCHEDULER, WORKER, "a ticket"),
        _step(WORKER, POSTGRES, "claims the decision: WORK, a pass, work_timeout"),
        _step(WORKER, WORKER, "calls the decider, which asks for tasks and returns; or the actor"),
        _step(WORKER, POSTGRES, "one transaction: the answer, the new tasks, who waits for whom, what is ready now"),
        _step(SCHEDULER, WORKER, "tickets for what is ready; and so on, until every task has finished"),
        _step(SCHEDULER, POSTGRES, "sweeps: what is overdue goes back into its queue"),
    ),
)
PATHS = {"path-job.svg": JOB, "path-trigger.svg": TRIGGER, "path-stage.svg": STAGE, "path-process.svg": PROCESS}
