"""Processes put right: looked at again under lock, and made what their rows say that they are (R3, R4, R5, R7).

Promises:
- Everything of one call is one transaction, that of the caller; a second call changes nothing.
- Graphs are locked first, in the order of their numbers, and processes then. What somebody else holds is `busy`, and
  left to him.
- One that cannot be looked at stops none of the others.
- Each repair is recorded with its source. What is put back into a queue comes at a bounded rate (R11).
- Nothing is done about a backlog (R6).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app import faults
from app.arrays import Array
from app.claims.storm import delays
from app.errors import Unavailable
from processes import accepting
from processes.model import GRAPH, PROCESS, Key, queue_of
from recovery import facts, record, writing
from recovery.diagnose import ProcessFacts, diagnose
from recovery.findings import Case, Finding, Verdict
from recovery.record import Repaired
from recovery.remedies import Remedies

log = logging.getLogger(__name__)

#: What is put right may show something else that is wrong, which it had hidden.
ROUNDS = 4
#: That are looked at together.
BATCH = 200


class StillWrong(RuntimeError):
    """What was put right is found again: a mistake of ours, and nothing of it is kept."""


@dataclass(frozen=True)
class Examined:
    process_id: int
    findings: tuple[Finding, ...] = ()

    @property
    def wrong(self) -> bool:
        return any(each.verdict is not Verdict.DIAGNOSIS for each in self.findings)


@dataclass(frozen=True)
class Healed:
    process_id: int
    #: What was put right, or declared broken.
    repaired: tuple[Finding, ...] = ()
    #: How it stands after that: why it does not move, and what nobody can put right.
    left: tuple[Finding, ...] = ()
    #: It has lost a part, and was begun anew, as its type wants it.
    restarted: bool = False
    #: Somebody changes it just now.
    busy: bool = False
    #: Why it could not be looked at.
    failed: str | None = None
    #: Actors that have something to do now.
    ready: tuple[str, ...] = ()


def examine(connection: Connection, process_ids: Iterable[int]) -> list[Examined]:
    """Only looks. In several statements, which one snapshot holds together."""
    found = facts.load(connection, process_ids)
    around = facts.surroundings(connection, found)
    return [Examined(each.id, diagnose(each, around)) for each in found]


def heal(connection: Connection, process_ids: Iterable[int], *, operation_id: int | None = None) -> list[Healed]:
    """`operation_id`: whose wish it is; None: by itself. After the commit, `ring`."""
    ids = sorted(set(process_ids))
    done = _Done()
    try:
        with connection.begin_nested():
            healed = _heal(connection, ids, done)
    except Unavailable:
        raise
    except Exception:
        # R3: one of them must not stop the rest.
        log.exception("processes are looked at one by one")
        done = _Done()
        healed = [_alone(connection, each, done) for each in ids]
    done.write(connection, operation_id)
    return healed


def ring(healed: Iterable[Healed]) -> None:
    accepting.ring(sorted({name for each in healed for name in each.ready}))


@dataclass
class _Done:
    """What has been done, to be written at the end, when what others wait for is locked last."""

    repairs: list[Repaired] = field(default_factory=list)
    queued: dict[Key, str] = field(default_factory=dict)

    def take(self, other: _Done) -> None:
        self.repairs += other.repairs
        self.queued |= other.queued

    def write(self, connection: Connection, operation_id: int | None) -> None:
        later = delays(connection, [queue_of(actor) for actor in self.queued.values()])
        held = [(*key, seconds) for key, seconds in zip(self.queued, later, strict=True) if seconds]
        if held:
            writing.hold_back(connection, held)
        record.record(connection, self.repairs, operation_id)


def _alone(connection: Connection, process_id: int, done: _Done) -> Healed:
    own = _Done()
    try:
        with connection.begin_nested():
            healed = _heal(connection, [process_id], own)
    except Unavailable:
        raise
    except Exception as error:
        log.exception("process %s cannot be looked at", process_id)
        return Healed(process_id, failed=f"{type(error).__name__}: {error}".partition("\n")[0])
    done.take(own)
    return healed[0]


def _heal(connection: Connection, ids: Sequence[int], done: _Done) -> list[Healed]:
    ours = _lock(connection, ids)
    left, repaired, ready = dict[int, tuple[Finding, ...]](), dict[int, list[Finding]](), dict[int, set[str]]()
    restarted = set[int]()
    wanted = ours
    for _ in range(ROUNDS):
        loaded = {each.id: each for each in facts.load(connection, wanted)}
        around = facts.surroundings(connection, loaded.values())
        found = {process_id: diagnose(each, around) for process_id, each in loaded.items()}
        left |= found
        wrong = {process_id: _wrong(loaded[process_id], each) for process_id, each in found.items()}
        wanted = [process_id for process_id, each in wrong.items() if each]
        if not wanted:
            break
        remedies = Remedies(connection, {each: loaded[each] for each in wanted}, {each: wrong[each] for each in wanted})
        remedies.apply()
        faults.reach("heal.repaired")
        restarted |= remedies.renewed
        for process_id in wanted:
            repaired.setdefault(process_id, []).extend(wrong[process_id])
            if process_id not in restarted - remedies.renewed:
                # Else it is begun again, which belongs to what was done about it before.
                done.repairs += _told(process_id, wrong[process_id], restarted=process_id in remedies.renewed)
        for process_id, actors in remedies.ready.items():
            ready.setdefault(process_id, set()).update(actors)
        done.queued |= remedies.queued
    else:
        raise StillWrong(f"processes {wanted} are not put right: {[left[each] for each in wanted][:5]}")
    return [
        Healed(
            each,
            tuple(repaired.get(each, ())),
            left.get(each, ()),
            restarted=each in restarted,
            busy=each not in left,
            ready=tuple(sorted(ready.get(each, ()))),
        )
        for each in ids
    ]


def _wrong(process: ProcessFacts, findings: Sequence[Finding]) -> list[Finding]:
    """What is to be done something about."""
    return [each for each in findings if each.verdict is not Verdict.DIAGNOSIS and not _declared(process, each)]


def _declared(process: ProcessFacts, finding: Finding) -> bool:
    match finding.case:
        case Case.PROCESS_LOST:
            watched = process.graph is not None and process.graph.watched
            return not (watched or process.open or any(task.open for task in process.tasks))
        case Case.TASK_LOST | Case.VALUE_LOST | Case.WAITS_FOR_NOTHING:
            return process.declared
        case _:
            return False


def _told(process_id: int, findings: Iterable[Finding], *, restarted: bool) -> list[Repaired]:
    return [
        Repaired(
            record.PROCESS,
            f"{process_id}/{each.tasks[0]}" if len(each.tasks) == 1 else str(process_id),
            each.case,
            "restarted" if restarted else each.cure,
            {"tasks": list(each.tasks[:100])} if len(each.tasks) > 1 else None,
        )
        for each in findings
    ]


def _lock(connection: Connection, ids: Sequence[int]) -> list[int]:
    """The graphs first, as everybody; then the processes, for what has no graph."""
    these = sa.cast(list(ids), Array(sa.BigInteger))
    graphs = sa.select(GRAPH.c.process_id).where(GRAPH.c.process_id == sa.any_(these)).order_by(GRAPH.c.process_id)
    processes = sa.select(PROCESS.c.id).where(PROCESS.c.id == sa.any_(these)).order_by(PROCESS.c.id)
    locked = set(connection.execute(graphs.with_for_update(skip_locked=True)).scalars())
    held = set(connection.execute(processes.with_for_update(skip_locked=True)).scalars())
    # Those that are there and not ours are somebody else's; one that has begun in between has a graph by now.
    busy = set(connection.execute(graphs).scalars()) - locked
    busy |= set(connection.execute(processes).scalars()) - held
    return [each for each in ids if each not in busy]
