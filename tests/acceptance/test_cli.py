"""The command line on a real database: most of it in this process, and what a process adds as the console script."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.orm import Session

from app import workers
from app.cli.root import run
from app.db import autocommit
from app.jobs import endings, schedules
from app.jobs.model import Job, JobLog, JobState, Outcome, PeriodicJob
from app.limits import Queue
from app.settings import settings
from tests.conftest import forget_connections
from tests.kit import rows, tasks
from tests.kit.process import ROOT
from tidemill import cancel, enqueue, periodic

SCRIPT = Path(sys.executable).with_name("tidemill")
READING = ["status", "doctor", "job list", "job log", "job periodic", "job periodic list", "queue list"]


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


Tidemill = Callable[..., Said]


@pytest.fixture
def tidemill(capsys: pytest.CaptureFixture[str]) -> Tidemill:
    """In this process."""

    def call(words: str, *more: str) -> Said:
        capsys.readouterr()
        code = run([*words.split(), *more])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


@pytest.fixture(autouse=True)
def _broker(broker_url: str) -> None:
    """Here too: what is changed rings for it."""


def script(words: str, env: Mapping[str, str], cwd: Path = ROOT) -> Said:
    command = [str(SCRIPT), *words.split()]
    done = subprocess.run(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )
    return Said(done.returncode, done.stdout, done.stderr)


def one_sentence(said: Said, *parts: str) -> bool:
    return said.err.startswith("Error: ") and said.err.count("\n") == 1 and all(part in said.err for part in parts)


def log(session: Session, value: str = "x", outcome: Outcome = Outcome.FAILED, times: int = 1) -> int:
    """Executions of a job that is gone; its id."""
    job_id = enqueue(tasks.record.s(value))
    row = session.execute(sa.select(*Job.__table__.c).where(Job.id == job_id)).one()
    for _ in range(times):
        endings.log(session, row, outcome, error=f"it was {value}")
    session.execute(sa.delete(Job).where(Job.id == job_id))
    session.commit()
    return int(job_id)


def park(session: Session, job_id: int) -> None:
    session.execute(sa.update(Job).where(Job.id == job_id).values(state=JobState.PARKED, attempts=4, error="no"))
    session.commit()


@contextmanager
def live_worker(*queues: str, slots: int = 2) -> Iterator[None]:
    with autocommit() as connection:
        workers.beat(connection, "here@test", list(queues), slots, 1)
        yield


# Reading


def test_all_that_reads_gives_one_json_document(env: dict[str, str], session: Session) -> None:
    """As the console script, all at once."""
    job_id = enqueue(tasks.record.s("Прилив"))
    commands = [*READING, f"job show {job_id}"]
    started = [
        subprocess.Popen(
            [SCRIPT, *words.split(), "--json"], env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for words in commands
    ]
    for words, process in zip(commands, started, strict=True):
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0 if words != "doctor" else 1, b""), words  # no worker takes the job
        assert isinstance(json.loads(out), dict), words
        if words == "job list":
            [found] = json.loads(out)["jobs"]
            assert found["args"] == ["Прилив"]
            assert datetime.fromisoformat(found["enqueued_at"]).utcoffset() == timedelta(0)


@pytest.mark.parametrize("words", READING)
def test_all_that_reads_speaks_to_people_too(words: str, tidemill: Tidemill, session: Session) -> None:
    for _ in range(2):
        said = tidemill(words)
        assert said.out
        assert "Traceback" not in said.err
        periodic(tasks.record.s("x"), every="1h")
        enqueue(tasks.record.s("x"))
        log(session)


def test_status_counts_and_flags_what_nobody_takes(tidemill: Tidemill, session: Session) -> None:
    with live_worker("jobs"):
        for queue in ("jobs", "lonely", "lonely"):
            enqueue(tasks.record.s("x"), queue=queue)
        enqueue(tasks.record.s("later"), eta=3600)
        park(session, enqueue(tasks.record.s("parked")))
        log(session, outcome=Outcome.DONE)
        said = tidemill("status --json").data
        jobs, lonely = said["queues"]
        assert (jobs["ready"], jobs["later"], jobs["parked"], jobs["slots"]) == (1, 1, 1, 2)
        assert not jobs["stands_still"]
        assert (lonely["ready"], lonely["slots"], lonely["stands_still"]) == (2, 0, True)
        assert lonely["oldest"] >= 0
        assert said["workers"][0]["alive"]
        assert said["executions"]["done"] == 1
        assert "lonely: 2 jobs are ready and no live worker takes them" in tidemill("status").out


def test_job_list_filters(tidemill: Tidemill, session: Session) -> None:
    mine = enqueue(tasks.record.s("needle"), key="mine", queue="hay")
    park(session, other := enqueue(tasks.noop.s()))

    def found(words: str) -> list[int]:
        return [each["id"] for each in tidemill(f"job list --json {words}").data["jobs"]]

    assert found("") == [mine, other]
    for words in ("--args needle", "--key mine", "--queue hay", f"--task {tasks.record.name}", "--state waiting"):
        assert found(words) == [mine]
    assert found("--state parked --error no") == [other]
    assert found("--task nobody") == []
    assert "--limit shows more" in tidemill("job list --limit 1").err


def test_job_log_filters(tidemill: Tidemill, session: Session) -> None:
    first, second = log(session, "one"), log(session, "two", Outcome.DONE)

    def found(words: str) -> list[int]:
        return [each["job_id"] for each in tidemill(f"job log --json {words}").data["log"]]

    assert found("") == [second, first]
    assert found("--outcome failed") == found("--error one") == found(f"--job {first}") == [first]
    assert found("--since 1h") == [second, first]
    assert found("--until 1h") == found("--since 2999-01-01T00:00:00Z") == found("--worker nobody") == []


def test_job_show(tidemill: Tidemill, session: Session) -> None:
    job_id = enqueue(tasks.record.s("needle"), priority=7)
    assert tidemill(f"job show {job_id} --json").data["job"]["priority"] == 7
    assert "needle" in tidemill(f"job show {job_id}").out
    gone = log(session)
    assert tidemill(f"job show {gone} --json").data["job"] is None
    assert "not in the queue any more" in tidemill(f"job show {gone}").out


# Changing


def test_retry_cancel_snooze_and_priority(tidemill: Tidemill, session: Session) -> None:
    park(session, job_id := enqueue(tasks.record.s("x")))
    assert tidemill(f"job retry {job_id}").code == 0
    assert rows.state(session, job_id) is JobState.WAITING
    assert tidemill(f"job priority {job_id} -5").out == f"job {job_id} has priority -5\n"
    assert tidemill(f"job snooze {job_id} --until 2h").code == 0
    changed = rows.job(session, job_id)
    assert changed is not None
    assert changed.rank == 5
    assert changed.due_at is not None
    assert changed.due_at > datetime.now(UTC) + timedelta(minutes=110)
    assert tidemill(f"job cancel {job_id}").code == 0
    assert rows.outcomes(session, job_id) == [Outcome.CANCELLED]


def test_what_cannot_be_changed_does_not_hold_up_the_others(tidemill: Tidemill, session: Session) -> None:
    park(session, parked := enqueue(tasks.record.s("x")))
    said = tidemill(f"job retry {parked + 1000} {parked}")
    assert (said.code, said.out) == (1, f"job {parked} is tried again\n")
    assert one_sentence(said, f"no job {parked + 1000} is in the queue")


def test_cancel_of_many_asks(tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [enqueue(tasks.record.s(i)) for i in range(3)]
    words = "job cancel " + " ".join(map(str, ids))
    said = tidemill(words)
    assert said.code == 2
    assert one_sentence(said, "--yes")
    assert rows.count(session) == 3
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda _question: False)
    said = tidemill(words)
    assert (said.code, "Nothing was changed." in said.out) == (1, True)
    assert tidemill(words, "--yes").code == 0
    assert rows.count(session) == 0


def test_rerun_puts_each_job_in_once(tidemill: Tidemill, session: Session) -> None:
    """However many of its tries match."""
    log(session, "one", times=3)
    log(session, "two")
    log(session, "three", Outcome.DONE)
    refused = tidemill("job rerun --outcome failed")
    assert (refused.code, rows.count(session)) == (2, 0)
    assert tidemill("job rerun --outcome failed --yes").code == 0
    session.rollback()
    assert sorted(session.scalars(sa.select(Job.args))) == [["one"], ["two"]]


def test_rerun_of_few_and_of_none(tidemill: Tidemill, session: Session) -> None:
    log(session)
    [log_id] = session.scalars(sa.select(JobLog.id))
    said = tidemill(f"job rerun --log-id {log_id}")
    assert (said.code, rows.count(session)) == (0, 1)
    assert tidemill("job rerun --task nobody").out == "Nothing matches.\n"
    missing = tidemill(f"job rerun --log-id {log_id + 100}")
    assert missing.code == 1
    assert one_sentence(missing, str(log_id + 100))
    log(session)
    limited = tidemill("job rerun --outcome failed --limit 1 --yes")
    assert "Only the latest 1 are taken" in limited.out


def test_periodic(tidemill: Tidemill, session: Session) -> None:
    periodic(tasks.record.s("x"), cron="0 4 * * *", tz="Europe/Moscow", name="nightly")
    assert "0 4 * * * Europe/Moscow" in tidemill("job periodic").out
    assert tidemill("job periodic pause nightly").code == 0
    assert tidemill("job periodic --json").data["periodic"][0]["paused"] is True
    assert tidemill("job periodic resume nightly").code == 0
    assert tidemill("job periodic remove nightly").code == 2
    assert tidemill("job periodic remove nightly --yes").code == 0
    assert rows.count(session, PeriodicJob) == 0
    for change in ("pause", "resume", "remove --yes"):
        said = tidemill(f"job periodic {change} nightly")
        assert said.code == 1
        assert one_sentence(said, "no periodic job is named 'nightly'")
    schedules.declared.clear()


def test_queue(tidemill: Tidemill, session: Session) -> None:
    with live_worker("mail"):
        assert tidemill("queue limit mail --rate 6/min --parallel 3 --burst 2") == Said(
            0, "mail: rate 6/min, parallel 3, burst 2\n", ""
        )
        assert tidemill("queue pause mail").code == 0
        [found] = tidemill("queue list --json").data["queues"]
        assert (found["rate"], found["max_parallel"], found["burst"], found["paused"]) == ("6/min", 3, 2, True)
        assert "PAUSED, 6/min burst 2, 3 at once" in tidemill("status").out
        assert tidemill("queue resume mail").code == 0
        assert tidemill("queue limit mail --rate none --parallel none").code == 0
    assert "no task, job or worker has a queue 'mial'" in tidemill("queue pause mial").err
    limits = {row.name: (row.paused, row.rate, row.max_parallel) for row in session.scalars(sa.select(Queue))}
    assert limits == {"mail": (False, None, None), "mial": (True, None, None)}


# The doctor


def levels(said: Said) -> dict[str, str]:
    return {each["check"]: each["level"] for each in said.data["findings"]}


def test_doctor_on_a_healthy_system(tidemill: Tidemill, session: Session) -> None:
    with live_worker("jobs"):
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
    row = session.execute(sa.select(*Job.__table__.c).where(Job.id == done)).one()
    endings.log(session, row, Outcome.DONE)  # and yet it waits: that must never be
    session.commit()
    periodic(tasks.record.s("x"), every="1h", name="late")
    session.execute(sa.update(PeriodicJob).values(next_at=sa.func.now() - timedelta(hours=1)))
    session.commit()
    monkeypatch.setattr("app.cli.health.work.SLACK", timedelta(0))
    said = tidemill("doctor --json")
    schedules.declared.clear()
    assert (said.code, said.data["healthy"]) == (1, False)
    failed = {check for check, level in levels(said).items() if level == "fail"}
    # The pause after a start of the server: recovery, and so this check, waits one lease.
    assert failed - {"leases"} == {"workers", "periodic jobs", "invariants"}
    assert all(each["advice"] for each in said.data["findings"] if each["level"] != "ok")


def test_doctor_on_a_broker_with_another_password(
    tidemill: Tidemill, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, _, rest = broker_url.partition("://")
    monkeypatch.setenv("TIDEMILL_BROKER_URL", f"{scheme}://:wrong@{rest.partition('@')[2]}")
    settings.cache_clear()
    begun = datetime.now(UTC)
    said = tidemill("doctor --json")
    assert datetime.now(UTC) - begun < timedelta(seconds=3)
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
    assert tidemill("migrate --grant", runtime, "--grant-producer", producer).code == 0
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
