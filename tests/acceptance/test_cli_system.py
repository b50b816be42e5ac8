"""The command line where it looks at the whole system: doctor, migrate, rights, settings, errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.orm import Session

from app.db import autocommit
from app.jobs import endings, schedules
from app.jobs.model import Job, JobState, KnownTask, Outcome, PeriodicJob
from app.settings import settings
from tests.conftest import forget_connections
from tests.kit import rows, tasks
from tests.kit.cli import Said, Tidemill, live_worker, one_sentence, script
from tidemill import cancel, enqueue, periodic


@pytest.fixture(autouse=True)
def _broker(broker_url: str) -> None:
    """Here too: what is changed rings for it."""


def levels(said: Said) -> dict[str, str]:
    return {each["check"]: each["level"] for each in said.data["findings"]}


def known(session: Session, task: str) -> None:
    """As a service makes it known when it starts."""
    session.execute(sa.insert(KnownTask).values(name=task, queue="jobs", max_attempts=4))
    session.commit()


def test_doctor_on_a_healthy_system(tidemill: Tidemill, session: Session) -> None:
    with live_worker("jobs"):
        known(session, tasks.record.name)
        enqueue(tasks.record.s("x"))
        said = tidemill("doctor --json")
    assert (said.code, said.data["healthy"]) == (0, True)
    assert {check for check, level in levels(said).items() if level != "ok"} == {"scheduler"}


def test_doctor_finds_what_stands_still(tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TIDEMILL_LEASE", "1s"), ("TIDEMILL_SWEEP_INTERVAL", "1s")):
        monkeypatch.setenv(name, value)
    settings.cache_clear()
    lost, done = enqueue(tasks.record.s("lost")), enqueue(tasks.record.s("done"), queue="lonely")
    session.execute(
        sa.update(Job)
        .where(Job.id == lost)
        .values(
            state=JobState.RUNNING,
            pass_key=sa.func.gen_random_uuid(),
            recovery_time=sa.func.now() - timedelta(hours=1),
            claimed_by="w",
            claimed_at=sa.func.now(),
        )
    )
    endings.log(session, [done], Outcome.DONE)  # and yet it waits: that must never be
    session.commit()
    periodic(tasks.record.s("x"), every="1h", name="late")
    session.execute(sa.update(PeriodicJob).values(next_at=sa.func.now() - timedelta(hours=1)))
    session.commit()
    monkeypatch.setattr("app.health.work.SLACK", timedelta(0))
    said = tidemill("doctor --json")
    schedules.declared.clear()
    assert (said.code, said.data["healthy"]) == (1, False)
    failed = {check for check, level in levels(said).items() if level == "fail"}
    # The pause after a start of the server: recovery, and so this check, waits one lease.
    assert failed - {"leases"} == {"workers", "periodic jobs", "invariants"}
    assert all(each["advice"] for each in said.data["findings"] if each["level"] != "ok")


def test_doctor_tells_of_parked_jobs(tidemill: Tidemill, session: Session) -> None:
    made = [enqueue(tasks.record.s("x"), queue=queue) for queue in ("few", "many", "many")]
    session.execute(sa.update(Job).where(Job.id.in_(made)).values(state=JobState.PARKED, error="OSError: no disk\nat"))
    session.commit()
    said = tidemill("doctor --json")
    found = next(each for each in said.data["findings"] if each["check"] == "parked jobs")
    assert (found["level"], said.code) == ("warn", 0)
    assert found["detail"] == (
        f"3 in 2 queues, most in many; the latest is {made[2]}, {tasks.record.name}: OSError: no disk"
    )
    assert "tidemill job list --state parked" in found["advice"]


def test_doctor_tells_of_jobs_whose_task_no_worker_knows(tidemill: Tidemill, session: Session) -> None:
    enqueue(tasks.record.s("x"))
    known(session, tasks.record.name)

    def found() -> tuple[str, str]:
        said = tidemill("doctor --json")
        return next(
            (each["level"], each["detail"]) for each in said.data["findings"] if each["check"] == "unknown tasks"
        )

    assert found()[0] == "ok"
    enqueue(tasks.noop.s())
    assert found() == ("warn", f"jobs wait for 1 task that no worker knows: '{tasks.noop.name}' (1)")
    # Known once, and not to the worker of today.
    session.execute(
        sa.update(Job).where(Job.task == tasks.record.name).values(error=f"no task named {tasks.record.name} is …")
    )
    session.commit()
    assert found()[1].startswith("jobs wait for 2 tasks")


def test_doctor_on_a_broker_with_another_password(
    tidemill: Tidemill, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, _, rest = broker_url.partition("://")
    monkeypatch.setenv("TIDEMILL_BROKER_URL", f"{scheme}://:wrong@{rest.partition('@')[2]}")
    settings.cache_clear()
    begun = datetime.now(UTC)
    said = tidemill("doctor --json")
    assert datetime.now(UTC) - begun < timedelta(seconds=30)
    assert (said.code, levels(said)["broker"]) == (1, "fail")
    assert "wrong" not in said.out.replace("wrong password", "")


def test_doctor_without_a_database(tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_DATABASE_URL", "postgresql://u:p@127.0.0.1:1/x")
    forget_connections()
    said = tidemill("doctor --json")
    assert (said.code, levels(said)["database"], levels(said)["broker"]) == (1, "fail", "ok")


# The schema


def test_migrate(empty_database_url: str, tidemill: Tidemill) -> None:
    said = tidemill("migrate --check")
    assert said.code == 1
    assert one_sentence(said, "at revision none, this release needs 0", "tidemill migrate")
    told = tidemill("migrate --check --json")
    assert (told.code, told.data["current"], told.data["is_current"]) == (1, None, False)
    for words in ("status", "job list", "job retry 1", "queue pause x"):
        said = tidemill(words)
        assert said.code == 1
        assert one_sentence(said, "run 'tidemill migrate'"), words
    unmigrated = tidemill("doctor --json")
    assert (unmigrated.code, levels(unmigrated)["schema"]) == (1, "fail")
    said = tidemill("migrate")
    assert said.code == 0
    assert "running upgrade" in said.out
    assert "nothing to do" in tidemill("migrate").out
    assert tidemill("migrate --check").code == 0
    told = tidemill("migrate --check --json")
    assert (told.code, told.data["schema"], told.data["is_current"]) == (0, "tidemill", True)
    assert told.data["current"] == told.data["wanted"]
    assert tidemill("migrate --json").code == 2


def test_migrate_makes_the_tasks_known(env: dict[str, str], session: Session) -> None:
    said = script("migrate", env)
    assert (said.code, said.err) == (0, "")
    assert "known" in said.out
    assert rows.known(session, tasks.record.name)


@pytest.fixture
def roles(engine: Engine, databases: Any) -> Iterator[tuple[str, str]]:
    """Two that may log in, with names that want quoting."""
    names = 'run"time 100%', "producer of 'shop'"
    quoted = ['"' + name.replace('"', '""').replace("%", "%%") + '"' for name in names]
    with databases.admin.connect() as admin:
        for name in quoted:
            admin.exec_driver_sql(f"DROP ROLE IF EXISTS {name}")
            admin.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        yield names
        forget_connections()
        inside = sa.create_engine(databases.admin.url.set(database=engine.url.database), poolclass=sa.NullPool)
        with inside.begin() as connection:
            for name in quoted:
                connection.exec_driver_sql(f"DROP OWNED BY {name}")
        for name in quoted:
            admin.exec_driver_sql(f"DROP ROLE {name}")


def become(role: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = make_url(url).set(username=role, password="secret")
    monkeypatch.setenv("TIDEMILL_DATABASE_URL", theirs.render_as_string(hide_password=False))
    forget_connections()


def calls_of(role: str) -> set[str]:
    """The functions of the schema that it may call."""
    allowed = sa.text(
        "select distinct 'tidemill.' || proname from pg_proc where pronamespace = 'tidemill'::regnamespace "
        "and has_function_privilege(:role, oid, 'execute')"
    )
    with autocommit() as connection:
        return set(connection.execute(allowed, {"role": role}).scalars())


def test_granted_roles_can_do_their_work_and_no_more(
    roles: tuple[str, str], database_url: str, tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, producer = roles
    enqueue_in_sql = sa.text("select tidemill.enqueue('tests.kit.tasks.record')")
    become(runtime, database_url, monkeypatch)
    assert levels(tidemill("doctor --json"))["rights"] == "fail"
    said = tidemill("status")
    assert said.code == 1
    assert one_sentence(said, "permission denied for schema tidemill")
    monkeypatch.setenv("TIDEMILL_DATABASE_URL", database_url)
    forget_connections()
    granted = tidemill("migrate --grant", runtime, "--grant-producer", producer)
    assert granted.code == 0
    may = "tidemill.enqueue, tidemill.advance, tidemill.advance_many, tidemill.offer"
    assert f"role {producer}: may call {may}" in granted.out
    assert may in " ".join(tidemill("migrate --help").out.split())
    assert calls_of(producer) == set(may.split(", "))
    assert one_sentence(tidemill("migrate --grant nobody-at-all"), "no role 'nobody-at-all'")
    become(runtime, database_url, monkeypatch)
    cancel(enqueue(tasks.record.s("x")))
    assert levels(tidemill("doctor --json"))["rights"] == "ok"
    assert one_sentence(tidemill("migrate --grant", producer), "does not own the schema")
    become(producer, database_url, monkeypatch)
    with autocommit() as connection:
        with pytest.raises(sa.exc.DBAPIError, match="no task named"):  # it was let in
            connection.execute(enqueue_in_sql)
        with pytest.raises(sa.exc.ProgrammingError, match="permission denied for table job"):
            connection.execute(sa.select(Job.id))


# Errors


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("TIDEMILL_DATABASE_URL", "postgresql://u:secret@127.0.0.1:1/x", ("does not answer",)),
        ("TIDEMILL_DATABASE_URL", "postgresql://u:se/cret@127.0.0.1:5432/x", ("TIDEMILL_DATABASE_URL",)),
        ("TIDEMILL_DATABASE_URL", "mysql://x", ("TIDEMILL_DATABASE_URL", "postgresql://")),
        ("TIDEMILL_LEASE", "soon", ("TIDEMILL_LEASE='soon'",)),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    name: str, value: str, parts: tuple[str, ...], tidemill: Tidemill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    forget_connections()
    said = tidemill("status")
    assert (said.code, said.out) == (1, "")
    assert one_sentence(said, *parts)
    assert "cret" not in said.err


def test_errors_of_the_script(env: dict[str, str], tmp_path: Path) -> None:
    """Without a traceback, unless it is asked for."""
    said = script("job show 4711", env)
    assert (said.code, one_sentence(said, "no job 4711")) == (1, True)
    assert "Traceback" in script("job show 4711", env | {"TIDEMILL_LOG_LEVEL": "DEBUG"}).err
    nowhere = {name: value for name, value in env.items() if not name.startswith("TIDEMILL_")}
    said = script("status", nowhere, tmp_path)
    assert (said.code, one_sentence(said, "TIDEMILL_DATABASE_URL is not set", "tidemill up")) == (1, True)
    said = script("migrate", env | {"TIDEMILL_MODULES": "no_such_module"})
    assert (said.code, one_sentence(said, "TIDEMILL_MODULES", "no_such_module")) == (1, True)
    said = script("job log --since nonsense", env)
    assert (said.code, one_sentence(said, "--since")) == (2, True)
