"""The command line, called in this process or as the console script, and what its tests put in front of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import workers
from app.cli.root import run
from app.db import autocommit
from app.jobs import endings
from app.jobs.model import Job, JobState, Outcome
from tests.kit import tasks
from tests.kit.process import ROOT
from tidemill import enqueue

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


def script(words: str, env: Mapping[str, str], cwd: Path = ROOT, more: Sequence[str] = ()) -> Said:
    command = [str(SCRIPT), *words.split(), *more]
    done = subprocess.run(
        command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300
    )
    return Said(done.returncode, done.stdout, done.stderr)


def one_sentence(said: Said, *parts: str) -> bool:
    return said.err.startswith("Error: ") and said.err.count("\n") == 1 and all(part in said.err for part in parts)


def log(session: Session, value: str = "x", outcome: Outcome = Outcome.FAILED, times: int = 1) -> int:
    """Executions of a job that is gone; its id."""
    job_id = enqueue(tasks.record.s(value))
    for _ in range(times):
        endings.log(session, [job_id], outcome, error=f"it was {value}")
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
