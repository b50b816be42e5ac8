"""Every way in which the data can violate the catalogue of invariants, as the SQL that plants it. All of them fit into
one database at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

#: What forbids such states, out of the way.
LOOSEN = """
ALTER TABLE tidemill.job DROP CONSTRAINT job_claimed_exactly_while_running;
DROP INDEX tidemill.job_key;
ALTER TABLE tidemill.run DROP CONSTRAINT run_claimed_exactly_while_running;
DROP INDEX tidemill.run_one_live;
ALTER TABLE tidemill.stage_visit DROP CONSTRAINT stage_visit_claimed_exactly_while_running;
ALTER TABLE tidemill.stage_visit DROP CONSTRAINT stage_visit_waits_for_a_time;
ALTER TABLE tidemill.stage_visit DROP CONSTRAINT stage_visit_asked_again_while_not_waiting;
ALTER TABLE tidemill.resweep_part DROP CONSTRAINT resweep_part_claimed_exactly_while_running;
ALTER TABLE tidemill.decision DROP CONSTRAINT decision_held_exactly_in_work;
ALTER TABLE tidemill.process DROP CONSTRAINT process_ended_as_its_state_says;
ALTER TABLE tidemill.graph DROP CONSTRAINT graph_counts_its_tasks;
ALTER TABLE tidemill.task DROP CONSTRAINT task_pending_waits;
ALTER TABLE tidemill.task DROP CONSTRAINT task_ready_waits_for_nothing;
ALTER TABLE tidemill.operation DROP CONSTRAINT operation_counts_its_items;
"""
#: What is sound, of each kind: to be left alone. The job, run and part 1 run, 2 wait. `p` is a pool with a quick task.
SOUND = """
INSERT INTO tidemill.job (id, task, queue) VALUES (2, 't', 'q');
INSERT INTO tidemill.job (id, task, queue, state, pass_key, recovery_time, claimed_by, claimed_at)
VALUES (1, 't', 'q', 'running', gen_random_uuid(), now() + interval '1 h', 'w/1', now());
INSERT INTO tidemill.entity_kind (kind, mode) VALUES ('lot', 'exclusive'), ('bid', 'optimistic');
INSERT INTO tidemill.stage (kind, name, task, module, max_attempts)
SELECT kind, name, 'm.' || name, 'm', 3 FROM (VALUES ('lot'), ('bid')) k (kind), (VALUES ('check'), ('sell')) n (name);
INSERT INTO tidemill.stage_visit (kind, entity_id, stage, shard, queue, due_at)
VALUES ('lot', '2', 'check', tidemill.shard('2'), 'stage.lot.check', now());
INSERT INTO tidemill.resweep (id, kind, stage, total) VALUES (1, 'lot', 'check', 9);
INSERT INTO tidemill.resweep_part (resweep_id, part, queue) VALUES (1, 2, 'stage.lot.check.ask');
INSERT INTO tidemill.queue (name, rate) VALUES ('sound', 1);
CREATE TABLE public.lamp (id bigint PRIMARY KEY, version bigint NOT NULL DEFAULT 1);
CREATE TABLE public.pair (a text, b int, version bigint NOT NULL DEFAULT 1, PRIMARY KEY (a, b));
SELECT tidemill.watch('public.lamp'), tidemill.watch('public.pair');
INSERT INTO public.lamp VALUES (1);
INSERT INTO public.pair VALUES ('a/b', 1);
INSERT INTO tidemill.stage (kind, name, task, module, max_attempts)
VALUES ('lamp', 'light', 'm.light', 'm', 3), ('pair', 'light', 'm.light', 'm', 3);
INSERT INTO tidemill.stage_state (kind, entity_id, stage, type_url, value)
VALUES ('lamp', '1', 'light', 't', ''), ('pair', 'a\\/b/1', 'light', 't', '');
SELECT setval('tidemill.job_id_seq', 1000), setval('tidemill.run_id_seq', 1000), setval('tidemill.event_id_seq', 1000);
"""
RUNNING = "'running', gen_random_uuid(), now() + interval '1 h', 'w/1', now()"


@dataclass(frozen=True)
class Damage:
    invariant: str
    plant: str
    subjects: tuple[str, ...]
    #: What comes of it: a query, and its rows.
    query: str = ""
    rows: tuple[Any, ...] = ()

    def into(self, session: Session) -> None:
        for each in self.plant.split(";"):
            if each.strip():
                session.execute(sa.text(each.replace(":", r"\:")))

    def came_of_it(self, session: Session) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in session.execute(sa.text(self.query.replace(":", r"\:")))]


def changed(table: str, change: str, where: str) -> str:
    return f"UPDATE tidemill.{table} SET {change} WHERE {where};"  # noqa: S608


def _job(number: int, columns: str = "", values: str = "") -> str:
    return f"INSERT INTO tidemill.job (id, task, queue{columns}) VALUES ({number}, 't', 'q'{values});"  # noqa: S608


def _running_job(number: int, change: str) -> str:
    return _job(number, ", state, pass_key, recovery_time, claimed_by, claimed_at", f", {RUNNING}") + changed(
        "job", change, f"id = {number}"
    )


def _logged(number: int, times: int = 1) -> str:
    return (
        "INSERT INTO tidemill.job_log "  # noqa: S608
        "(job_id, attempt, outcome, queue, task, args, kwargs, rank, max_attempts, enqueued_at) "
        f"SELECT {number}, 1, 'done', 'q', 't', '[]', '{{}}', 0, 4, now() FROM generate_series(1, {times});"
    )


def _job_is(number: int) -> str:
    return f"SELECT state::text, pass_key IS NULL, recovery_time IS NULL FROM tidemill.job WHERE id = {number}"  # noqa: S608


_WAITING = (("waiting", True, True),)
JOBS = (
    Damage(
        "a job that runs has a pass, and a time at which it is lost",
        _running_job(11, "pass_key = NULL") + _running_job(12, "recovery_time = NULL"),
        ("11", "12"),
        _job_is(12),
        _WAITING,
    ),
    Damage(
        "a job that does not run has no pass",
        _job(13, ", pass_key", ", gen_random_uuid()"),
        ("13",),
        _job_is(13),
        _WAITING,
    ),
    Damage(
        "a job that runs says who has it",
        _running_job(14, "claimed_by = NULL"),
        ("14",),
        "SELECT state::text, claimed_by FROM tidemill.job WHERE id = 14",
        (("running", "unknown"),),
    ),
    Damage(
        "the claim of a job ends",
        _running_job(15, "recovery_time = 'infinity'"),
        ("15",),
        "SELECT state::text, isfinite(recovery_time), pass_key IS NOT NULL FROM tidemill.job WHERE id = 15",
        (("running", True, True),),
    ),
    Damage(
        "a job that waits can be claimed",
        _job(16, ", due_at", ", NULL") + _job(17, ", not_before, rank", ", 'infinity', 3"),
        ("16", "17"),
        "SELECT due_at IS NOT NULL, not_before IS NULL FROM tidemill.job WHERE id IN (16, 17)",
        ((True, True), (True, True)),
    ),
    Damage(
        "the lost claim of a job is taken away by a sweep",
        _running_job(18, "recovery_time = now() - interval '1 d'"),
        ("18",),
    ),
    Damage(
        "at most one waiting job has a key",
        _job(19, ", key", ", 'k'") + _job(20, ", key", ", 'k'") + _job(21, ", key", ", 'k'"),
        ("19", "20"),
        "SELECT j.id, l.job_id, l.outcome::text FROM tidemill.job j, tidemill.job_log l WHERE j.key = 'k' "
        "AND l.key = 'k' ORDER BY 2",
        ((21, 19, "absorbed"), (21, 20, "absorbed")),
    ),
    Damage(
        "a job that ended is not in the queue", _job(22) + _logged(22), ("22",), _job_is(22), (("parked", True, True),)
    ),
    Damage("a job ended well at most once", _logged(23, 2), ("23",)),
    Damage(
        "a pass is held by one queue",
        _running_job(24, "queue = 'a'")
        + _running_job(25, "queue = 'b', pass_key = (SELECT pass_key FROM tidemill.job WHERE id = 24)"),
        ("24", "25"),
        _job_is(24),
        _WAITING,
    ),
    Damage("the time of a job comes", _job(26, ", due_at", ", 'infinity'"), ("26",)),
    Damage("no job is parked", _job(27, ", state, error", ", 'parked', 'E'"), ("27",)),
    Damage(
        "a timetable fires when its slot comes",
        "INSERT INTO tidemill.periodic_job (name, task, args, kwargs, queue, rank, max_attempts, every, tz, catch_up, "
        "next_at) VALUES ('p', 't', '[]', '{}', 'q', 0, 1, '1 h', 'UTC', 'one', now() - interval '1 d')",
        ("p",),
    ),
    Damage(
        "the next job has a number of its own",
        "SELECT setval('tidemill.job_id_seq', 5)",
        ("tidemill.job_id_seq",),
        "SELECT nextval('tidemill.job_id_seq') > max(id) FROM tidemill.job",
        ((True,),),
    ),
)


def _run(number: int, task: str, columns: str = "", values: str = "") -> str:
    return (
        f"INSERT INTO tidemill.run (id, task, queue, priority, generation{columns}) "  # noqa: S608
        f"VALUES ({number}, '{task}', 'reactive.p', 0, 0{values});"
    )


def _running_run(number: int, task: str, change: str) -> str:
    return _run(number, task, ", state, pass_key, recovery_time, claimed_by, claimed_at", f", {RUNNING}") + changed(
        "run", change, f"id = {number}"
    )


def _run_is(number: int) -> str:
    return f"SELECT state::text, pass_key IS NULL, ended_at IS NULL FROM tidemill.run WHERE id = {number}"  # noqa: S608


_DONE = ", state, ended_at, started_at, checked"
_CANCELLED = (("cancelled", True, False),)
#: Tasks `t11`, `t12`, … are there.
RUNS = (
    Damage(
        "a run that runs has a pass, and a time at which it is lost",
        _running_run(11, "t11", "pass_key = NULL"),
        ("11",),
        _run_is(11),
        (("waiting", True, True),),
    ),
    Damage(
        "a run that does not run has no pass",
        _run(12, "t12", ", recovery_time", ", now()"),
        ("12",),
        "SELECT state::text, recovery_time IS NULL FROM tidemill.run WHERE id = 12",
        (("waiting", True),),
    ),
    Damage(
        "a run that runs says who has it",
        _running_run(13, "t13", "claimed_at = NULL"),
        ("13",),
        "SELECT claimed_at IS NOT NULL, claimed_by FROM tidemill.run WHERE id = 13",
        ((True, "w/1"),),
    ),
    Damage(
        "the claim of a run ends",
        _running_run(14, "t14", "recovery_time = 'infinity'"),
        ("14",),
        "SELECT isfinite(recovery_time) FROM tidemill.run WHERE id = 14",
        ((True,),),
    ),
    Damage(
        "a run that waits can be claimed",
        _run(15, "t15", ", due_at", ", NULL") + _run(16, "t16", ", due_at", ", 'infinity'"),
        ("15", "16"),
        "SELECT isfinite(due_at) FROM tidemill.run WHERE id IN (15, 16)",
        ((True,), (True,)),
    ),
    Damage(
        "the lost claim of a run is taken away by a sweep",
        _running_run(17, "t17", "recovery_time = now() - interval '1 d'"),
        ("17",),
    ),
    Damage(
        "a task has at most one live run",
        _run(18, "t18") + _running_run(19, "t18", "priority = 0") + _running_run(20, "t18", "priority = 0"),
        ("18", "20"),
        "SELECT id, state::text FROM tidemill.run WHERE task = 't18' ORDER BY id",
        ((18, "cancelled"), (19, "running"), (20, "cancelled")),
    ),
    Damage("a live run is that of a task", _run(21, "nobody"), ("21",), _run_is(21), _CANCELLED),
    Damage(
        "what waits, waits in the pool of its task",
        _run(22, "t22") + changed("run", "queue = 'reactive.x'", "id = 22"),
        ("22",),
        "SELECT state::text, queue FROM tidemill.run WHERE id = 22",
        (("waiting", "reactive.p"),),
    ),
    Damage(
        "nothing waits of a task that was removed",
        _run(23, "t23") + changed("reactive_task", "removed_at = now()", "name = 't23'"),
        ("23",),
        _run_is(23),
        _CANCELLED,
    ),
    Damage(
        "a task in quarantine starts nothing",
        _run(24, "t24") + changed("reactive_task", "quarantined_at = now()", "name = 't24'"),
        ("24",),
        _run_is(24),
        _CANCELLED,
    ),
    Damage(
        "a live run has no end",
        _run(25, "t25", ", ended_at", ", now()"),
        ("25",),
        _run_is(25),
        (("waiting", True, True),),
    ),
    Damage(
        "a run that ended says when",
        _run(26, "t26", _DONE, ", 'done', NULL, now(), '[]'"),
        ("26",),
        _run_is(26),
        (("done", True, False),),
    ),
    Damage(
        "a run was made by a generation that the task has had",
        _run(27, "t27") + changed("run", "generation = 1000", "id = 27"),
        ("27",),
        "SELECT r.generation = t.generation FROM tidemill.run r JOIN tidemill.reactive_task t ON t.name = r.task "
        "WHERE r.id = 27",
        ((True,),),
    ),
    Damage("a run that was done was checked before", _run(28, "t28", _DONE, ", 'done', now(), now(), NULL"), ("28",)),
    Damage(
        "a task rests on at least one parameter",
        "DELETE FROM tidemill.reactive_leaf WHERE task_id IN (SELECT id FROM tidemill.reactive_task WHERE name IN "
        "('t29', 't30'));"
        "UPDATE tidemill.reactive_task SET trigger = '{\"kind\": \"of another release\"}' WHERE name = 't30'",
        ("t29", "t30"),
        "SELECT name, quarantined_at IS NULL, (SELECT count(*) FROM tidemill.reactive_leaf WHERE task_id = t.id) "
        "FROM tidemill.reactive_task t WHERE name IN ('t29', 't30') ORDER BY 1",
        (("t29", True, 1), ("t30", False, 0)),
    ),
    Damage(
        "the next run has a number of its own",
        "SELECT setval('tidemill.run_id_seq', 5)",
        ("tidemill.run_id_seq",),
        "SELECT nextval('tidemill.run_id_seq') > max(id) FROM tidemill.run",
        ((True,),),
    ),
)


QUEUES = (
    Damage(
        "the rate of a queue is counted from a moment that was",
        "INSERT INTO tidemill.queue (name, rate, refilled_at) VALUES ('r1', 1, now() + interval '1 d');"
        "INSERT INTO tidemill.queue (name, rate, tokens) VALUES ('r2', 1, 'NaN'), ('r3', 1, -1000)",
        ("r1", "r2", "r3"),
        "SELECT tokens, refilled_at <= now() FROM tidemill.queue WHERE name ~ '^r[123]'",
        ((1.0, True), (1.0, True), (1.0, True)),
    ),
    Damage(
        "what is repaired in a queue comes within a day",
        "INSERT INTO tidemill.repair_pace (queue, until) VALUES ('far', 'infinity')",
        ("far",),
        "SELECT FROM tidemill.repair_pace WHERE queue = 'far'",
    ),
    Damage(
        "a queue does not rest",
        "INSERT INTO tidemill.queue (name, rests_why) VALUES ('tired', 'no answer')",
        ("tired",),
    ),
    Damage(
        "events are published",
        "INSERT INTO tidemill.event_relay (id, snapshot, cluster, error) VALUES (1, pg_current_snapshot(), 1, 'gone') "
        "ON CONFLICT (id) DO UPDATE SET error = 'gone'",
        ("1",),
    ),
    Damage(
        "the next event has a number of its own",
        "INSERT INTO tidemill.event (id, kind, entity_id, stage, version, fields, entity, state_version) "
        "VALUES (5000, 'lot', '1', 'check', 1, '{}', '{}', 0)",
        ("tidemill.event_id_seq",),
        "SELECT nextval('tidemill.event_id_seq') > max(id) FROM tidemill.event",
        ((True,),),
    ),
    Damage(
        "the next process has a number of its own",
        "SELECT setval('tidemill.process_id_seq', 1)",
        ("tidemill.process_id_seq",),
        "SELECT nextval('tidemill.process_id_seq') > max(id) FROM tidemill.process",
        ((True,),),
    ),
)
