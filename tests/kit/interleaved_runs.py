"""What sessions do to a reactive task and its run, for `tests.kit.interleavings`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

import sqlalchemy as sa

from app import claims
from app.claims import Claim, Cursor
from app.db import transaction
from app.jobs.endings import Failure
from recovery import record
from recovery import runs as lost_runs
from tests.kit import reactive
from tests.kit.reactive import ORDERS, day
from triggers import ChunkDelta, polling
from triggers.definition import queue_of
from triggers.model import RUN, TASK, Ctl, CtlSeen, TaskRun
from triggers.registration import declared
from triggers.run import Run
from triggers.work import OneRun, RunServer

LEASE = timedelta(hours=1)
MADE = ("marts.orders", "made_to")


class Runs:
    """A task whose trigger holds. `moved`: without a run; `waits`: with one that waits; `late`: a worker has it, whose
    lease is over; `begun`: and has checked the trigger."""

    DOMAIN: ClassVar[str] = record.RUN
    NOTHING: ClassVar[Mapping[str, Hashable]] = {"claim": False, "time": 0, "poll": 0}

    def __init__(self, world: reactive.World) -> None:
        self.world = world
        self.held: Claim | None = None
        self.run: Run | None = None

    def begin(self, rows: str) -> None:
        self.task = self.world.task("mart", ChunkDelta(*ORDERS, "day"), produces=[MADE], backoff="1h")
        reactive.advance(day(1))
        if rows != "moved":
            polling.run_once()
        if rows in ("late", "begun"):
            self.held = _claim("w/late")
            if rows == "begun":
                self.run = self._one()._check(declared[self.task])
            past = sa.func.now() - timedelta(seconds=1)
            with transaction() as session:
                session.execute(sa.update(RUN).values(recovery_time=past))

    def _one(self) -> OneRun:
        assert self.held is not None
        server = RunServer(self.world.calls, "w/late", LEASE, lambda: False)
        return OneRun(server, self.held, self.held.rows[0])

    def act(self, name: str) -> Hashable:
        match name.split()[0]:
            case "claim":
                return len(_claim(f"w/{name}").rows) == 1
            case "poll":
                return polling.run_once().started
            case "move":
                reactive.advance(day(2))
            case "time":
                return lost_runs.run_once().lost
            case "begin":
                return self._one()._check(declared[self.task]) is not None
            case "finish":
                assert self.run is not None
                self.run.outputs = {MADE: day(1)}
                self._one()._finish(self.run)
            case "fail":
                one = self._one()
                one._save(lambda session: one._fail(Failure("on purpose", again=timedelta(0)), session))
            case _:
                raise ValueError(name)
        return None

    def keep(self, results: Mapping[str, Any]) -> None:
        with transaction() as session:
            runs = session.execute(sa.select(RUN)).all()
            ctl = {(row.entity, row.parameter): row.value for row in session.execute(sa.select(Ctl.__table__))}
            seen = session.execute(sa.select(CtlSeen.value)).scalar_one_or_none()
        for name, found in results.items():
            if name.startswith("claim") and found:
                # Nobody else has it.
                assert [each.claimed_by for each in runs if each.state == "running"] == [f"w/{name}"]
        if results.get("time out"):
            # What lost its claim has saved nothing.
            assert MADE not in ctl
            assert seen is None
        done = [each for each in runs if each.state == "done"]
        assert (MADE in ctl) == bool(done)
        # T16: there is a run, or nothing that it could be for.
        live = [each for each in runs if each.state in ("waiting", "running")]
        assert len(live) == (0 if seen == ctl[ORDERS] else 1)

    def look(self) -> Hashable:
        """With the pass that comes by in the end: what is left to it is not lost."""
        polling.run_once()
        holder = sa.case((RUN.c.state == "running", RUN.c.claimed_by))
        with transaction() as session:
            return (
                *_rows(session, sa.select(RUN.c.state, holder, RUN.c.attempts, sa.cast(RUN.c.checked, sa.Text))),
                *_rows(session, sa.select(TASK.c.failures, TASK.c.quarantine_reason)),
                *_rows(session, sa.select(Ctl.entity, Ctl.value)),
                *_rows(session, sa.select(CtlSeen.entity, CtlSeen.value)),
            )


def _claim(worker: str) -> Claim:
    return claims.take(Cursor(TaskRun, queue_of("default")), 1, worker=worker, lease=LEASE)


def _rows(session: Any, query: Any) -> list[Hashable]:
    return sorted(map(tuple, session.execute(query)), key=str)
