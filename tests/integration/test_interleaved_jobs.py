"""Jobs: claim, finish, time out and offer, in every order of their statements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, Row

from app import claims, limits
from app.claims import Claim, Cursor, lost
from app.db import transaction
from app.jobs import enqueue
from app.jobs.current import ThisJob
from app.jobs.endings import Done, Failure
from app.jobs.model import JOB, JOB_LOG, Job, Outcome
from app.jobs.run import Batch, Runner
from recovery import jobs as lost_jobs
from recovery import record
from tests.kit import tasks
from tests.kit.interleavings import Interleavings

QUEUE, LEASE = "check", timedelta(hours=1)
Call = Callable[[ThisJob, Row[Any]], Done | Failure]


class Calls:
    def __init__(self, call: Call) -> None:
        self.call = call

    def batch_size(self, _task: str) -> int:
        return 0


def _well(job: ThisJob, row: Row[Any]) -> Done:
    return Done(row.id, job.started)


def _badly(_job: ThisJob, _row: Row[Any]) -> Failure:
    return Failure("no", again=timedelta(0), outcome=Outcome.RETRIED)


def _within(job: ThisJob, row: Row[Any]) -> Done | Failure:
    """Its effect is committed together with its end, or not at all."""
    try:
        with job.transaction() as session:
            enqueue(tasks.record.s("effect"), queue="other", session=session)
    except Exception as error:  # noqa: BLE001 - as Celery's tracer
        return Failure(str(error), again=timedelta(0), outcome=Outcome.RETRIED)
    return Done(row.id, job.started)


def claim(worker: str) -> Claim:
    return claims.take(Cursor(Job, QUEUE), 1, worker=worker, lease=LEASE)


class World:
    """One job with a key, in the hands of a worker whose lease is over."""

    def __init__(self) -> None:
        self.held: Claim | None = None

    def hand_out(self) -> None:
        self.held = claim("w/late")
        past = sa.func.now() - timedelta(seconds=1)
        with transaction() as session:
            session.execute(sa.update(JOB).values(recovery_time=past))

    def end(self, call: Call) -> Hashable:
        assert self.held is not None
        Batch(Runner(Calls(call), "w/late", LEASE, lambda: False), self.held).work()
        return None

    def acts(self, *names: str) -> dict[str, Callable[[], Hashable]]:
        return {name: lambda name=name: self.act(name) for name in names}

    def act(self, name: str) -> Hashable:
        match name.split()[0]:
            case "claim":
                rows = claim(f"w/{name}").rows
                return rows[0].args if rows else None
            case "offer":
                enqueue(tasks.record.s(name), key="k", queue=QUEUE)
            case "finish":
                self.end(_well)
            case "fail":
                self.end(_badly)
            case "commit":
                self.end(_within)
            case "time":
                # What a stranger is in the way of is left to the next sweep.
                found = lost_jobs.run_once()
                return found.lost + found.absorbed
        return None


def look() -> Hashable:
    """What waits, runs and has ended."""
    with transaction() as session:
        jobs = session.execute(sa.select(JOB.c.state, JOB.c.args[0].as_string(), JOB.c.claimed_by, JOB.c.attempts))
        ended = session.execute(sa.select(JOB_LOG.c.outcome, JOB_LOG.c.args[0].as_string()))
        return tuple(sorted(map(tuple, jobs), key=str)), tuple(sorted(map(tuple, ended), key=str))


@pytest.fixture
def world() -> Iterator[World]:
    # What is put back is ready at once.
    with patch.object(lost, "DELAY", timedelta(0)):
        yield World()


NOTHING = {"claim": None, "time out": 0}


def nothing(names: tuple[str, ...]) -> dict[str, Hashable]:
    return {name: found for name in names for word, found in NOTHING.items() if name.startswith(word)}


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("names", [("claim 1", "claim 2"), ("claim", "offer"), ("offer 1", "offer 2")])
def test_of_what_waits(names: tuple[str, ...], limited: bool, every: Interleavings, world: World) -> None:
    # J1 J2
    if limited:
        with transaction() as session:
            limits.configure(session, QUEUE, max_parallel=5)
    world.act("offer 0")
    every.start_from_here(record.JOB)
    found = every.order(world.acts(*names), look, nothing(names))
    print(names, limited, found)


LATE = [
    ("finish", "time out"),
    ("fail", "time out"),
    ("commit", "time out"),
    ("time out", "claim"),
    ("finish", "offer"),
    ("fail", "offer"),
    ("time out", "offer"),
    ("fail", "claim"),
    ("time out 1", "time out 2"),
]


@pytest.mark.parametrize("names", LATE, ids=" and ".join)
def test_of_what_runs(names: tuple[str, ...], every: Interleavings, world: World) -> None:
    # J2 J3
    world.act("offer 0")
    world.hand_out()
    every.start_from_here(record.JOB)
    found = every.order(world.acts(*names), look, nothing(names))
    print(names, found)
