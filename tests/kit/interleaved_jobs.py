"""What sessions do to a job with a key, for `tests.kit.interleavings`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine import Row

from app import claims, limits
from app.claims import Claim, Cursor
from app.db import transaction
from app.jobs import enqueue
from app.jobs.current import ThisJob
from app.jobs.endings import Done, Failure
from app.jobs.model import JOB, JOB_LOG, Job, Outcome
from app.jobs.run import Batch, Runner
from recovery import jobs as lost_jobs
from recovery import record
from tests.kit import tasks

QUEUE, LEASE = "check", timedelta(hours=1)
Call = Callable[[ThisJob, Row[Any]], Done | Failure]


class Calls:
    def __init__(self, call: Call) -> None:
        self.call = call

    def batch_size(self, task: str) -> int:
        return 0

    def call_batch(self, task: str, rows: Sequence[Row[Any]]) -> Failure | None:
        raise AssertionError(f"{task} is called for each")


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


class Jobs:
    """`waits`: one job with a key; `late`: in the hands of a worker whose lease is over; `limited`: its queue has
    limits; `empty`: none."""

    DOMAIN: ClassVar[str] = record.JOB
    NOTHING: ClassVar[Mapping[str, Hashable]] = {"claim": None, "time": 0}

    def __init__(self) -> None:
        self.held: Claim | None = None

    def begin(self, rows: str) -> None:
        if rows == "limited":
            with transaction() as session:
                limits.configure(session, QUEUE, max_parallel=5)
        if rows != "empty":
            self.act("offer 0")
        if rows == "late":
            self._hand_out()

    def _hand_out(self) -> None:
        self.held = claim("w/late")
        past = sa.func.now() - timedelta(seconds=1)
        with transaction() as session:
            session.execute(sa.update(JOB).values(recovery_time=past))

    def _end(self, call: Call) -> Hashable:
        assert self.held is not None
        Batch(Runner(Calls(call), "w/late", LEASE, lambda: False), self.held).work()
        return None

    def act(self, name: str) -> Hashable:
        match name.split()[0]:
            case "claim":
                rows = claim(f"w/{name}").rows
                return rows[0].args if rows else None
            case "offer":
                enqueue(tasks.record.s(name), key="k", queue=QUEUE)
            case "finish":
                self._end(_well)
            case "fail":
                self._end(_badly)
            case "commit":
                self._end(_within)
            case "time":
                # What a stranger is in the way of is left to the next sweep.
                found = lost_jobs.run_once()
                return found.lost + found.absorbed
            case _:
                raise ValueError(name)
        return None

    def keep(self, results: Mapping[str, Any]) -> None:
        with transaction() as session:
            jobs = session.execute(
                sa.select(JOB.c.state, JOB.c.args[0].as_string(), JOB.c.claimed_by, JOB.c.queue)
            ).all()
            ended = session.execute(sa.select(JOB_LOG.c.outcome, JOB_LOG.c.args[0].as_string())).all()
        outcomes = [str(outcome) for outcome, _ in ended]
        for name, found in results.items():
            if name.startswith("claim") and found is not None:
                # Nobody else has it, and it is there until its worker ends it.
                assert [each[2] for each in jobs if each[0] == "running" and f'["{each[1]}"]' == found] == [f"w/{name}"]
        if results.get("time out"):
            # What lost its claim has saved nothing.
            assert "done" not in outcomes
        assert outcomes.count("done") + outcomes.count("absorbed") + outcomes.count("lost") <= 1
        assert [each[1] for each in jobs if each[3] == "other"] == ["effect"] * (
            "commit" in results and "done" in outcomes
        )
        known = {each[1] for each in jobs} | {value for _, value in ended}
        # A call is made, unless a newer one with its key takes its place; and the newest never vanishes.
        offered = {name for name in results if name.startswith("offer")}
        assert not offered or known & offered
        assert known & {"offer 0", *offered}

    def look(self) -> Hashable:
        """What waits, runs and has ended."""
        with transaction() as session:
            jobs = session.execute(sa.select(JOB.c.state, JOB.c.args[0].as_string(), JOB.c.claimed_by, JOB.c.attempts))
            ended = session.execute(sa.select(JOB_LOG.c.outcome, JOB_LOG.c.args[0].as_string()))
            return tuple(sorted(map(tuple, jobs), key=str)), tuple(sorted(map(tuple, ended), key=str))
