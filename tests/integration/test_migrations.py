"""Migrations make what the models say, once, however many try (and every constraint is tested by name)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from sqlalchemy.engine import Engine

from app import db, migrate
from app.db import SCHEMA, new_engine
from app.jobs.model import JobState, Outcome
from app.schema import TABLES, metadata
from processes.states import DecisionState, ProcessState, TaskState
from recovery.operations.model import ItemState, OperationState
from stages.model import PartState, VisitState
from tests.kit.database import Databases
from triggers.model import RunKind, RunState

COLUMNS = sa.text(
    """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
           pg_get_expr(d.adbin, d.adrelid)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'tidemill'::regnamespace AND c.relkind = 'r' AND c.relname <> 'alembic_version'
    """
)
INDEXES = sa.text(
    "SELECT tablename, indexname, indexdef FROM pg_indexes "
    "WHERE schemaname = 'tidemill' AND tablename <> 'alembic_version'"
)
CONSTRAINTS = sa.text(
    """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'tidemill'::regnamespace AND conrelid::regclass::text !~ 'alembic' AND contype <> 'n'
    """
)
ENUMS = sa.text(
    "SELECT t.typname, e.enumlabel, e.enumsortorder FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid "
    "WHERE t.typnamespace = 'tidemill'::regnamespace"
)
STORAGE = sa.text(
    "SELECT relname, array(SELECT unnest(reloptions) ORDER BY 1)::text FROM pg_class "
    "WHERE relnamespace = 'tidemill'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'"
)
CATALOGS = {
    "columns": COLUMNS,
    "indexes": INDEXES,
    "constraints": CONSTRAINTS,
    "enums": ENUMS,
    "storage options": STORAGE,
}


def catalog(engine: Engine, query: sa.TextClause) -> set[tuple[object, ...]]:
    with engine.connect() as connection:
        return {tuple(row) for row in connection.execute(query)}


def test_a_migrated_database_is_what_the_models_say(
    databases: Databases, engine: Engine, subtests: pytest.Subtests
) -> None:
    url = databases.empty()
    by_models = new_engine(url, pool_size=1)
    with by_models.begin() as connection:
        connection.execute(sa.schema.CreateSchema(SCHEMA))
        metadata.create_all(connection)
    for what, query in CATALOGS.items():
        with subtests.test(what):
            expected = catalog(by_models, query)
            assert expected
            assert catalog(engine, query) == expected
    by_models.dispose()
    databases.drop(url)


def test_the_schema_is_complete() -> None:
    assert {table.__tablename__ for table in TABLES} == {table.name for table in metadata.tables.values()}


def test_the_enums_are_those_of_the_code(engine: Engine) -> None:
    # J6
    found = {(name, label) for name, label, _ in catalog(engine, ENUMS)}
    enums = {
        "job_state": JobState,
        "job_outcome": Outcome,
        "run_state": RunState,
        "run_kind": RunKind,
        "visit_state": VisitState,
        "part_state": PartState,
        "process_state": ProcessState,
        "task_state": TaskState,
        "decision_state": DecisionState,
        "operation_state": OperationState,
        "operation_item_state": ItemState,
    }
    assert found == {(name, word.value) for name, words in enums.items() for word in words}


def test_migrating_says_what_was_there(empty_database_url: str) -> None:
    engine = db.engine()
    assert migrate.state(engine).current is None
    first = migrate.migrate(engine)
    assert first.current is None
    again = migrate.migrate(engine)
    assert again.current == again.wanted == migrate.state(engine).current
    assert again.current_is_wanted


def test_migrating_twice_at_once_does_it_once(empty_database_url: str) -> None:
    engines = [new_engine(empty_database_url, pool_size=1) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        states = list(threads.map(migrate.migrate, engines))
    assert sorted(state.current or "" for state in states) == ["", *[states[0].wanted] * 3]
    for engine in engines:
        engine.dispose()


def test_a_migration_that_fails_leaves_nothing(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    upgrade = command.upgrade

    def crash(*arguments: Any) -> None:
        upgrade(*arguments)
        raise ZeroDivisionError

    monkeypatch.setattr(command, "upgrade", crash)
    with pytest.raises(ZeroDivisionError):
        migrate.migrate(db.engine())
    assert SCHEMA not in sa.inspect(db.engine()).get_schema_names()
    monkeypatch.undo()


def test_it_lives_beside_the_users_own_migrations(empty_database_url: str) -> None:
    engine = db.engine()
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num text)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('theirs')")
    migrate.migrate(engine)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == "theirs"


def test_unqualified_names_are_the_users(database_url: str) -> None:
    # The embedded role is named like the schema, and "$user" comes first in the default search path.
    with db.engine().begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id int)")
        where = connection.exec_driver_sql("SELECT schemaname FROM pg_tables WHERE tablename = 'orders'").scalar_one()
    assert where == "public"


#: Every constraint and unique index, and the test that shows what it refuses.
REFUSED = {
    "console_session_token_fkey": "test_pages_access.py::test_a_session_is_of_a_token",
    "ctl_value_within_years": "test_ctl_sql.py::test_the_database_refuses_a_value_that_python_cannot_read",
    "decision_held_exactly_in_work": "test_process_invariants.py::test_the_database_refuses_what_makes_no_sense",
    "entity_kind_mode_known": "test_stage_model.py::test_the_database_refuses_words_that_nobody_knows",
    "event_relay_only_one": "test_event_retention.py::test_there_is_one_row_of_the_relay",
    "graph_counts_its_tasks": "test_process_invariants.py::test_the_database_refuses_what_makes_no_sense",
    "job_claimed_exactly_while_running": "test_claims.py::test_the_database_keeps_pass_and_state_together",
    "job_queue_not_reserved": "test_reactive_model.py::test_no_job_waits_in_a_queue_of_another_domain",
    "job_key": "test_keys.py::test_two_waiting_jobs_with_one_key_are_refused_by_the_database",
    "known_error_name_key": "test_known_errors_kept.py::test_the_database_refuses_senseless_rules",
    "known_error_narrow": "test_known_errors_kept.py::test_the_database_refuses_senseless_rules",
    "known_error_proposes_known": "test_known_errors_kept.py::test_the_database_refuses_senseless_rules",
    "periodic_job_cron_or_every": "test_periodic.py::test_the_database_wants_one_of_cron_and_every",
    "operation_counts_its_items": "test_operations.py::test_the_database_refuses_senseless_operations",
    "operation_ended_as_its_state_says": "test_operations.py::test_the_database_refuses_senseless_operations",
    "operation_item_is_about_something": "test_operations.py::test_the_database_refuses_senseless_operations",
    "process_ended_as_its_state_says": "test_process_invariants.py::test_the_database_refuses_what_makes_no_sense",
    "process_idempotency": "test_process_invariants.py::test_the_database_refuses_what_makes_no_sense",
    "reactive_cursor_only_one": "test_reactive_retention.py::test_there_is_one_cursor",
    "queue_burst_at_least_one": "test_limits.py::test_the_database_refuses_wrong_limits",
    "queue_max_parallel_positive": "test_limits.py::test_the_database_refuses_wrong_limits",
    "queue_rate_positive": "test_limits.py::test_the_database_refuses_wrong_limits",
    "reactive_leaf_task_id_fkey": "test_reactive_model.py::test_a_leaf_belongs_to_a_task",
    "reactive_task_first_run_known": "test_reactive_model.py::test_words_that_nobody_knows_are_refused",
    "reactive_task_id_key": "test_reactive_model.py::test_two_tasks_have_two_ids",
    "reactive_task_on_lapse_known": "test_reactive_model.py::test_words_that_nobody_knows_are_refused",
    "resweep_ended_as_its_state_says": "test_stage_resweep.py::test_the_database_refuses_senseless_walks",
    "resweep_one_of_a_stage": "test_stage_model.py::test_a_stage_has_one_walk_at_a_time",
    "resweep_part_claimed_exactly_while_running": (
        "test_stage_model.py::test_a_part_has_a_pass_exactly_while_it_is_walked"
    ),
    "resweep_part_resweep_id_fkey": "test_stage_model.py::test_a_part_belongs_to_a_walk",
    "resweep_rate_positive": "test_stage_model.py::test_the_database_refuses_a_rate_that_is_none",
    "run_claimed_exactly_while_running": "test_reactive_model.py::test_a_run_has_a_pass_exactly_while_it_runs",
    "run_one_live": "test_reactive_model.py::test_a_task_has_one_live_run",
    "run_window_has_two_ends": "test_reactive_model.py::test_a_window_has_two_ends",
    "sharding_only_one": "test_stage_model.py::test_the_database_refuses_words_that_nobody_knows",
    "sharding_shards_within": "test_stage_model.py::test_the_database_refuses_words_that_nobody_knows",
    "stage_visit_asked_again_while_not_waiting": (
        "test_stage_model.py::test_the_database_refuses_an_entry_that_makes_no_sense"
    ),
    "stage_visit_claimed_exactly_while_running": (
        "test_stage_model.py::test_the_database_refuses_an_entry_that_makes_no_sense"
    ),
    "stage_visit_waits_for_a_time": "test_stage_model.py::test_the_database_refuses_an_entry_that_makes_no_sense",
    "task_pending_waits": "test_process_invariants.py::test_the_database_refuses_what_makes_no_sense",
    "task_ready_waits_for_nothing": "test_process_invariants.py::test_the_database_refuses_what_makes_no_sense",
    "token_hash_key": "test_tokens.py::test_the_database_refuses_senseless_tokens",
    "token_role_known": "test_tokens.py::test_the_database_refuses_senseless_tokens",
    "token_scope_of_narrow_roles": "test_tokens.py::test_the_database_refuses_senseless_tokens",
}


def test_every_constraint_has_a_test(engine: Engine, request: pytest.FixtureRequest) -> None:
    found = {str(name) for _, name, definition in catalog(engine, CONSTRAINTS) if "PRIMARY KEY" not in str(definition)}
    found |= {str(row[1]) for row in catalog(engine, INDEXES) if "UNIQUE" in str(row[2])}
    assert {name for name in found if not name.endswith("_pkey")} == REFUSED.keys()
    for where in REFUSED.values():
        file, _, test = where.partition("::")
        assert f"def {test}(" in (request.path.parent / file).read_text()


def test_postgres_15_is_enough(any_database_url: str) -> None:
    with db.engine().connect() as connection:
        version = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one())
    assert version // 10_000 >= migrate.FLOOR
    assert migrate.state(db.engine()).current_is_wanted
