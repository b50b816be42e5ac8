"""The tables of stages: what the database refuses, and which roles may do what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.cli import grants
from stages import queue
from tests.kit.database import Databases
from tests.kit.stages_rows import Stages, execute, visit, waiting, world


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        found.stage("publish")
        found.sync()
        yield found


# What the database refuses


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("state = 'running'", "stage_visit_claimed_exactly_while_running"),
        ("pass_key = gen_random_uuid()", "stage_visit_claimed_exactly_while_running"),
        ("again_at = now()", "stage_visit_asked_again_while_not_waiting"),
        ("again_low_at = now()", "stage_visit_asked_again_while_not_waiting"),
        ("due_at = null", "stage_visit_waits_for_a_time"),
    ],
)
def test_the_database_refuses_an_entry_that_makes_no_sense(stages: Stages, change: str, constraint: str) -> None:
    queue.offer("a", "offer.publish")
    with pytest.raises(sa.exc.IntegrityError, match=constraint):
        execute(" ".join(["UPDATE tidemill.stage_visit SET", change]))


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE tidemill.sharding SET shards = 0", "sharding_shards_within"),
        ("UPDATE tidemill.sharding SET shards = 4097", "sharding_shards_within"),
        ("INSERT INTO tidemill.sharding (id, shards) VALUES (2, 16)", "sharding_only_one"),
        ("UPDATE tidemill.entity_kind SET mode = 'shared'", "entity_kind_mode_known"),
    ],
)
def test_the_database_refuses_words_that_nobody_knows(stages: Stages, statement: str, constraint: str) -> None:
    with pytest.raises(sa.exc.IntegrityError, match=constraint):
        execute(statement)


RESWEEP = "INSERT INTO tidemill.resweep (kind, stage, total, rate) VALUES ('offer', 'publish', 0, :rate)"
PART = "INSERT INTO tidemill.resweep_part (resweep_id, part, queue, state) VALUES (:id, 0, 'q', :state)"


def test_the_database_refuses_a_rate_that_is_none(stages: Stages) -> None:
    with pytest.raises(sa.exc.IntegrityError, match="resweep_rate_positive"):
        execute(RESWEEP, rate=0)


def test_a_stage_has_one_walk_at_a_time(stages: Stages) -> None:
    execute(RESWEEP, rate=1)
    with pytest.raises(sa.exc.IntegrityError, match="resweep_one_of_a_stage"):
        execute(RESWEEP, rate=1)
    execute("UPDATE tidemill.resweep SET state = 'done', ended_at = now()")
    execute(RESWEEP, rate=1)


def test_a_part_belongs_to_a_walk(stages: Stages) -> None:
    with pytest.raises(sa.exc.IntegrityError, match="resweep_part_resweep_id_fkey"):
        execute(PART, id=1, state="waiting")


def test_a_part_has_a_pass_exactly_while_it_is_walked(stages: Stages) -> None:
    (walk,) = execute(f"{RESWEEP} RETURNING id", rate=1)
    with pytest.raises(sa.exc.IntegrityError, match="resweep_part_claimed_exactly_while_running"):
        execute(PART, id=walk.id, state="running")


# Rights


def login(engine: Engine, databases: Databases, name: str) -> Iterator[Session]:
    role = f"{name}_{engine.url.database}"
    with databases.admin.connect() as admin:
        admin.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD 'p'")
    theirs = sa.create_engine(engine.url.set(username=role, password="p"), poolclass=sa.NullPool)
    with Session(theirs) as found:
        yield found
    inside = sa.create_engine(databases.admin.url.set(database=engine.url.database), poolclass=sa.NullPool)
    with inside.begin() as connection:
        connection.exec_driver_sql(f"DROP OWNED BY {role} CASCADE")
    with databases.admin.connect() as admin:
        admin.exec_driver_sql(f"DROP ROLE {role}")


def role_of(session: Session) -> str:
    return str(session.get_bind().url.username)  # type: ignore[union-attr]


@pytest.fixture
def producer(stages: Stages, engine: Engine, databases: Databases) -> Iterator[Session]:
    for session in login(engine, databases, "produces"):
        grants.grant_producer(engine, role_of(session))
        yield session


@pytest.fixture
def runtime(stages: Stages, engine: Engine, databases: Databases) -> Iterator[Session]:
    for session in login(engine, databases, "runs"):
        grants.grant_runtime(engine, role_of(session))
        yield session


@pytest.fixture
def stranger(stages: Stages, engine: Engine, databases: Databases) -> Iterator[Session]:
    """Has no rights but on a table of its own, which somebody else has watched."""
    for session in login(engine, databases, "owns"):
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "CREATE TABLE public.own (id int PRIMARY KEY, version bigint NOT NULL DEFAULT 1, x int)"
            )
            connection.exec_driver_sql("SELECT tidemill.watch('public.own')")
        inside = sa.create_engine(databases.admin.url.set(database=engine.url.database), poolclass=sa.NullPool)
        with inside.begin() as connection:
            connection.exec_driver_sql(f"ALTER TABLE public.own OWNER TO {role_of(session)}")
        yield session


def test_a_producer_may_offer(producer: Session) -> None:
    # S3
    assert producer.execute(sa.text("SELECT tidemill.offer('offer', 'publish', 'a')")).scalar_one() is True
    producer.commit()
    assert waiting() == [("a", "publish")]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT tidemill.offer_visits('offer', '{a}', '{publish}', array[now()])",
        "SELECT tidemill.forget_entities('offer', '{a}')",
        "SELECT tidemill.watch('public.offer')",
        "SELECT * FROM tidemill.stage_visit",
        "DELETE FROM tidemill.entity_guard",
        "UPDATE tidemill.stage_state SET version = 1",
        "SELECT * FROM tidemill.stage",
    ],
)
def test_and_a_producer_may_do_nothing_else(producer: Session, statement: str) -> None:
    with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
        producer.execute(sa.text(statement))


def test_who_owns_only_the_table_may_write_it(stranger: Session) -> None:
    # S7
    for statement, expected in (
        ("INSERT INTO own (id) VALUES (1), (2), (3)", [("1", ["*"]), ("2", ["*"]), ("3", ["*"])]),
        ("UPDATE own SET x = 1 WHERE id = 1", [("1", ["x"])]),
        ("UPDATE own SET id = 4 WHERE id = 1", [("4", ["*"])]),
        ("DELETE FROM own WHERE id = 4", []),
    ):
        execute("DELETE FROM tidemill.stage_visit")
        stranger.execute(sa.text(statement))
        stranger.commit()
        found = execute("SELECT entity_id, fields FROM tidemill.stage_visit ORDER BY 1")
        assert [tuple(row) for row in found] == expected
    stranger.execute(sa.text("TRUNCATE own"))
    stranger.commit()
    for statement in ("SELECT * FROM tidemill.stage_visit", "SELECT tidemill.offer('offer', 'publish', 'a')"):
        with pytest.raises(sa.exc.ProgrammingError, match="permission denied for schema"):
            stranger.execute(sa.text(statement))
        stranger.rollback()


def test_objects_of_the_writer_do_not_get_between(stranger: Session) -> None:
    stranger.execute(sa.text("CREATE TEMP TABLE stage_visit (kind text)"))
    stranger.execute(sa.text("CREATE FUNCTION pg_temp.length(text) RETURNS int LANGUAGE sql AS 'SELECT 0'"))
    stranger.execute(sa.text("SET search_path = pg_temp, pg_catalog, public"))
    stranger.execute(sa.text("INSERT INTO own (id) VALUES (1)"))
    stranger.execute(sa.text("UPDATE own SET x = 2"))
    stranger.commit()
    assert visit("1").fields == ["*"]
    assert stranger.execute(sa.text("SELECT version FROM own")).scalar_one() == 2


def test_a_runtime_role_visits(runtime: Session, stages: Stages, engine: Engine) -> None:
    """All that a worker, a scheduler and a program with stages do; and the number of shards stays what it is."""
    role = role_of(runtime)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"GRANT SELECT, INSERT, UPDATE ON public.offer TO {role}")
    runtime.execute(sa.text("INSERT INTO offer (id) VALUES ('a')"))
    runtime.execute(sa.text("UPDATE tidemill.stage_visit SET low_at = now()"))
    assert queue.offer("a", "offer.publish", session=runtime) is True
    for table in ("stage", "stage_visit", "stage_state", "entity_guard", "entity_kind", "scheduler", "sharding"):
        runtime.execute(sa.select(sa.func.count()).select_from(sa.table(table, schema="tidemill")))
    runtime.execute(sa.text("CREATE TEMP TABLE own (id int PRIMARY KEY, version bigint NOT NULL DEFAULT 1)"))
    runtime.execute(sa.text("SELECT tidemill.watch('own')"))
    runtime.commit()
    with pytest.raises(sa.exc.ProgrammingError, match="permission denied for table sharding"):
        runtime.execute(sa.text("UPDATE tidemill.sharding SET shards = 5"))


def test_not_everybody_may_call_the_functions(stages: Stages) -> None:
    query = (
        "SELECT proname FROM pg_proc WHERE pronamespace = 'tidemill'::regnamespace "
        "AND has_function_privilege('public', oid, 'EXECUTE')"
    )
    assert execute(query) == []
