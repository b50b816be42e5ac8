"""Rows as earlier releases had them, of tables that later migrations change; by the revision from which they could be.

Of 0001 to 0003 there are the dumps. No release ever ran on one of the revisions after these and before 0012, so what
these rows say is what the code of 0012 wrote into the columns that there were.
"""

from __future__ import annotations

ROWS: dict[str, tuple[str, ...]] = {
    "0004": (
        "INSERT INTO tidemill.stage (kind, name, task, module, max_attempts) VALUES ('crate', 'weigh', 't', 'm', 3)",
        "INSERT INTO tidemill.stage_visit (kind, entity_id, stage, shard, queue, due_at) "
        "VALUES ('crate', '1', 'weigh', 1, 'stage.crate.weigh', now())",
        "INSERT INTO tidemill.stage_visit (kind, entity_id, stage, shard, state, queue, pass_key, recovery_time) "
        "VALUES ('crate', '2', 'weigh', 2, 'running', 'stage.crate.weigh', "
        "'11111111-2222-3333-4444-555555555555', now())",
        "INSERT INTO tidemill.resweep (kind, stage, total) VALUES ('crate', 'weigh', 7)",
        "INSERT INTO tidemill.resweep_part (resweep_id, part, state, queue, pass_key, recovery_time) "
        "VALUES (1, 1, 'running', 'stage.crate.resweep', '11111111-2222-3333-4444-555555555555', now())",
    ),
    "0005": ("INSERT INTO tidemill.token (name, hash, role) VALUES ('olga', '\\x01', 'operator')",),
    "0006": (
        "INSERT INTO tidemill.actor_preferences (name, decider, outside, module, task, accept_first, work_timeout, "
        "restart_after_work_timeout, max_restarts, force_finish_after_task_timeout, retry, fail_types, "
        "idle_process_timeout, retention, when_inconsistent, declared) "
        "VALUES ('ship', false, false, 'm', 'actor.ship', true, '1min', true, 3, false, '{}', '{}', '1h', '30d', "
        "'break', '{}')",
        "INSERT INTO tidemill.process (name, state, custom_id, idempotency_key, attributes, arguments, error, "
        "begun_at) VALUES ('deliver', 'BROKEN', 'A-1', 'k', '{\"shop\": \"north\"}', '[[1], {}]', 'no weight', now())",
        "INSERT INTO tidemill.graph (process_id, tasks, unfinished, broken) VALUES (1, 2, 2, 1)",
        "INSERT INTO tidemill.task (process_id, number, actor, state, arguments) VALUES (1, 1, 'ship', 'BROKEN', '[]')",
        "INSERT INTO tidemill.task (process_id, number, actor, state, arguments) VALUES (1, 2, 'ship', 'READY', '[]')",
        "INSERT INTO tidemill.decision (process_id, number, state, queue, pass_key, recovery_time) "
        "VALUES (1, 2, 'WORK', 'actor.ship', '11111111-2222-3333-4444-555555555555', now())",
        "INSERT INTO tidemill.broken_task (process_id, number, actor, type, message) "
        "VALUES (1, 1, 'ship', 'ValueError', 'order 4711 of \"anna\" has no weight')",
    ),
    "0007": ("INSERT INTO tidemill.repair (domain, subject, finding, action) VALUES ('job', '1', 'lost', 'put back')",),
    "0010": ("INSERT INTO tidemill.audit (actor, action, subject) VALUES ('olga', 'queue.pause', 'jobs')",),
}
#: What a migration gives to rows that are there already; of tables that it makes, and of others, nothing else changes.
ADDED: dict[tuple[str, str], dict[str, object]] = {
    ("0003", "queue"): {"kept_ranks": [], "kept_until": []},
    ("0005", "queue"): {"rests_why": None, "rests_until": None, "rests": 0},
    ("0005", "stage"): {"asked": True},
    ("0009", "broken_task"): {"fingerprint": "?"},
    ("0010", "actor_preferences"): {"repeatable": True},
    ("0010", "process"): {"copied_from": None},
    ("0012", "job"): {"trace": None},
    ("0012", "process"): {"trace": None},
}
