"""What sessions do to a process and its tasks, for `tests.kit.interleavings`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import timedelta
from typing import Any, ClassVar

import sqlalchemy as sa

from app.db import transaction
from processes import starting
from processes.answers import Handed
from processes.model import ANSWER, DECISION, PROCESS, TASK
from recovery import record
from tests.kit import process_rows as r
from tests.kit import process_world as w

LEASE = timedelta(hours=1)


class Processes:
    """`none`: no process; `registered`: one that has not begun; `waits`: its one task is ready; `late`: it is in work,
    and its time is over; `twice`: it was handed out again since, and that time is over too; `two`: two tasks are in
    work."""

    DOMAIN: ClassVar[str] = record.PROCESS
    NOTHING: ClassVar[Mapping[str, Hashable]] = {"claim": False, "time": 0, "begin": 0}

    def __init__(self) -> None:
        self.held: dict[str, Handed] = {}

    def begin(self, rows: str) -> None:
        match rows:
            case "registered":
                self.act("offer")
            case "waits" | "late" | "twice":
                r.one_of_toil()
            case "two":
                r.begin(starting.start(w.crowd, ["x", "y"]))
                r.well_with(r.handed_out("crowd"), ["x", "y"])
                self.held = {each: r.handed_out("toil", f"w/{each}", LEASE) for each in ("one", "other")}
            case _:
                pass
        if rows == "twice":
            self.held["late"] = r.handed_out("toil", "w/late", LEASE)
            r.let_pass(where="state = 'WORK'")
            r.sweep()
            r.due_again()
        if rows in ("late", "twice"):
            self.held["present"] = r.handed_out("toil", "w/present", LEASE)
            r.let_pass(where="state = 'WORK'")

    def act(self, name: str) -> Hashable:
        """`accept late`: the answer to the hand-out of that name."""
        word, _, whose = name.partition(" ")
        match word:
            case "offer":
                starting.start(w.crowd, ["x"], idempotency_key="k")
            case "begin":
                return starting.run_once().begun
            case "claim":
                return r.hand_out("toil", f"w/{name}", LEASE) is not None
            case "accept":
                return r.word(r.well(self.held[whose], whose))
            case "fail":
                return r.word(r.badly(self.held[whose]))
            case "time":
                found = r.sweep()
                return found.restarted + found.ended
            case _:
                raise ValueError(name)
        return None

    def keep(self, results: Mapping[str, Any]) -> None:
        with transaction() as session:
            processes = session.execute(sa.select(PROCESS)).all()
            tasks = {row.number: row for row in session.execute(sa.select(TASK))}
            decisions = {row.number: row for row in session.execute(sa.select(DECISION))}
        for name, found in results.items():
            word, _, whose = name.partition(" ")
            if word == "claim" and found:
                # Nobody else has it.
                assert [each.claimed_by for each in decisions.values() if each.state == "WORK"] == [f"w/{name}"]
            if word == "accept" and found == "taken":
                assert [each.result for each in tasks.values() if each.result == whose] == [whose]
            if word == "fail" and found == "again":
                assert sum(each.failures for each in decisions.values()) == 1
        taken = [name for name, found in results.items() if found == "taken"]
        # P5: the first good result counts, and no other.
        assert len(taken) == sum(isinstance(each.result, str) for each in tasks.values())
        if "time out" in results and "fail present" in results:
            assert (results["time out"], results["fail present"]) != (1, "again")
        # P2: one process for a key, which begins once.
        assert len(processes) == 1
        assert sum(found for name, found in results.items() if name.startswith("begin")) <= 1
        # R2: what has not finished is handed out, or waits for that.
        for task in tasks.values():
            assert task.state == "FINISHED" or decisions[task.number].state in ("QUEUED", "WORK")

    def look(self) -> Hashable:
        d, t = DECISION.c, TASK.c
        holder = sa.case((d.state == "WORK", d.claimed_by))
        with transaction() as session:
            return (
                *_rows(session, sa.select(PROCESS.c.state, sa.cast(PROCESS.c.value, sa.Text), PROCESS.c.error)),
                *_rows(session, sa.select(t.number, t.state, sa.cast(t.result, sa.Text), t.pending)),
                *_rows(session, sa.select(d.number, d.state, holder, d.epoch, d.failures, d.restarts, d.attempts)),
                *_rows(session, sa.select(ANSWER.c.number, ANSWER.c.worker, ANSWER.c.refused)),
            )


def _rows(session: Any, query: Any) -> list[Hashable]:
    return sorted(map(tuple, session.execute(query)), key=str)
