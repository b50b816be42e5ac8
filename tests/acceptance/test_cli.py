"""The command line on a real database: most of it in this process, and what a process adds as the console script."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.jobs import schedules
from app.jobs.model import Job, JobLog, JobState, Outcome, PeriodicJob
from app.limits import Queue
from tests.kit import rows, tasks
from tests.kit.cli import READING, SCRIPT, Said, Tidemill, live_worker, log, one_sentence, park
from tests.kit.process import ROOT
from tidemill import enqueue, periodic


@pytest.fixture(autouse=True)
def _broker(broker_url: str) -> None:
    """Here too: what is changed rings for it."""


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
