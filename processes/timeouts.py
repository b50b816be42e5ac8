"""What becomes of a decision whose time is over (P6, R2).

| the decision | its task's time | settings | then |
|---|---|---|---|
| waits | over | | the task ends with the error `TaskTimeout` |
| in work | over | `force_finish_after_task_timeout` | the same, at that moment |
| in work | over | not forced | the same, when its work timeout is over |
| in work | off, or not over | `restart_after_work_timeout` | back into the queue, `max_restarts` times |
| in work | off, or not over | not to be restarted | the error `WorkTimeout`, which the retry policy follows |

Each of these errors may be an accepted failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from app import counters
from app.settings import settings
from processes import accepting, inconsistent, lapsing
from processes.answers import TASK_TIMEOUT, WORK_TIMEOUT, Answer, Break, Failed, Handed
from processes.model import PREFERENCES, Key
from processes.statements import keyed

#: What becomes of a hand-out that was not answered in time, or of a decision that nobody can make.
AGAIN, ENDED_BY_ERROR, INCONSISTENT = "queued", "ended with an error", "ended"


@dataclass(frozen=True)
class Told:
    """What became of hand-outs."""

    what: str
    process_ids: Sequence[int]
    numbers: Sequence[int]


@dataclass
class Lapsed:
    """`restarted`: back in the queue; `ended`: with an error; `broken`: of these, tasks that are broken now; `busy`:
    something else changes their processes just now; `inconsistent`: decisions without a task."""

    restarted: int = 0
    ended: int = 0
    broken: int = 0
    busy: int = 0
    inconsistent: int = 0
    #: What became of which, where somebody had it.
    told: tuple[Told, ...] = ()
    #: Processes without a graph, where these are spared.
    lost: tuple[int, ...] = ()
    #: Actors whose queues have something to hand out now.
    ready: tuple[str, ...] = ()


@dataclass(frozen=True)
class Overdue:
    """Decisions whose time is over, as they were found. `in_batch`: their worker had others at the same time, so nobody
    knows which of them it died of: handed out alone, at no charge. `waited`: nobody had them."""

    keys: Sequence[Key]
    in_batch: frozenset[Key] = frozenset()
    waited: frozenset[Key] = frozenset()

    def of(self, ids: Collection[int]) -> Overdue:
        """Those of these processes."""
        return replace(self, keys=[key for key in self.keys if key[0] in ids])


def lapse(
    connection: Connection, overdue: Overdue, *, given_up: Handed | None = None, spare_lost: bool = False
) -> Lapsed:
    """Ends the hand-outs, and the waiting, whose time is over; looked at again under lock. `given_up`: its holder says
    itself that its time is over, and waits for the lock. `spare_lost`: processes without a graph are left as they are,
    and named."""
    found = Lapsed()
    locked, lost = _locked(connection, overdue, wait=given_up is not None)
    found.busy = len({key[0] for key in overdue.keys} - locked - lost)
    if spare_lost:
        found.lost, lost = tuple(sorted(lost)), set()
    held = _held(overdue.of(locked | lost), locked)
    again = _restart(connection, held, given_up)
    found.restarted = sum(len(each.numbers) for each in again)
    rest = _rest(connection, held, again, given_up) if found.restarted < len(held) else _Rest()
    found.inconsistent = inconsistent.repair(connection, rest.unsound)
    found.busy += rest.changed
    answers, ready = [_answer(row) for row in rest.ending], {each.actor for each in again}
    if answers:
        accepted = accepting.accept(connection, answers)
        found.ended = len(answers)
        found.broken = sum(isinstance(each, Break) for each in accepted.judgements)
        ready |= accepted.ready.keys()
    found.told = tuple(_told(again, rest, answers))
    late = Counter(row.actor for row in rest.ending if row.in_work)
    for each in again:
        late[each.actor] += len(each.numbers) if each.in_work else 0
    count(connection, late)
    found.ready = tuple(sorted(ready))
    return found


#: As `lapsing.HELD`.
_Held = tuple[int, int, bool, bool, bool]


def _locked(connection: Connection, overdue: Overdue, *, wait: bool) -> tuple[set[int], set[int]]:
    """The processes whose graphs are locked now: first of all, as everybody does. Whoever holds one changes it just
    now, and the next sweep looks again. And those that have none."""
    wanted = {key[0] for key in overdue.keys}
    found = lapsing.locking(wait=wait).execute(connection, {"p_ids": sorted(wanted)}).scalar_one()
    locked = set(found or ())
    return locked, inconsistent.without_graph(connection, sorted(wanted - locked))


def _held(overdue: Overdue, locked: Collection[int]) -> list[_Held]:
    waited, in_batch = overdue.waited, overdue.in_batch
    return [(*key, key not in waited, key in in_batch, key[0] in locked) for key in sorted(overdue.keys)]


def _parameters(held: Sequence[_Held], given_up: Handed | None) -> dict[str, Any]:
    return keyed(held, lapsing.HELD) | {"p_given_up": None if given_up is None else given_up.pass_key}


def _restart(connection: Connection, held: Sequence[_Held], given_up: Handed | None) -> Sequence[Row[Any]]:
    parameters = _parameters(held, given_up) | {"p_rate": float(settings().repair_rate)}
    return lapsing.restarting().execute(connection, parameters).all() if held else ()


@dataclass(frozen=True)
class _Rest:
    """What is not simply handed out again. `changed`: so many have become something else meanwhile."""

    ending: Sequence[Row[Any]] = ()
    unsound: Sequence[Row[Any]] = ()
    changed: int = 0


def _rest(connection: Connection, held: Sequence[_Held], again: Sequence[Row[Any]], given_up: Handed | None) -> _Rest:
    done = {key for each in again for key in zip(each.process_ids, each.numbers, strict=True)}
    left = [each for each in held if each[:2] not in done]
    rows = connection.execute(lapsing.overdue(), _parameters(left, given_up)).all()
    ending = [row for row in rows if row.sound and not row.again]
    unsound = [row for row in rows if not row.sound]
    return _Rest(ending, unsound, len(rows) - len(ending) - len(unsound))


def _told(again: Sequence[Row[Any]], rest: _Rest, answers: Sequence[Answer]) -> Iterator[Told]:
    if rest.unsound:
        yield Told(INCONSISTENT, *zip(*((row.process_id, row.number) for row in rest.unsound), strict=True))
    for each in again:
        if each.in_work:
            yield Told(AGAIN, each.process_ids, each.numbers)
    if ended := [each.handed.key for each in answers if each.handed.pass_key is not None]:
        yield Told(ENDED_BY_ERROR, *zip(*ended, strict=True))


def _answer(row: Row[Any]) -> Answer:
    """The error that it ends with."""
    if row.late:
        return _error(row, TASK_TIMEOUT, "it was not done within its task_timeout", final=True)
    told = f"{row.claimed_by} {_how(row)}"
    if not row.restarts_allowed:
        return _error(row, WORK_TIMEOUT, told, final=False)
    return _error(row, WORK_TIMEOUT, f"{told}; handed out {row.restarts + 1} times", final=True)


def _how(row: Row[Any]) -> str:
    return lapsing.DIED if row.died else lapsing.SILENT


def _error(row: Row[Any], kind: str, message: str, *, final: bool) -> Answer:
    handed = Handed(row.process_id, row.number, row.epoch, row.pass_key, row.claimed_by)
    return Answer(handed, Failed((kind, "Exception"), message, final=final), by_time=True)


def count(connection: Connection, late: Mapping[str, int], more: Mapping[str, int] | None = None) -> None:
    """R2: monitoring goes by it. By actor, answers that did not come; `more`: what else is counted."""
    # In the order of their names, as everybody who counts several.
    for actor, times in sorted(late.items()):
        grown = sa.update(PREFERENCES).where(PREFERENCES.c.name == actor)
        connection.execute(grown.values(work_timeouts=PREFERENCES.c.work_timeouts + times))
    counters.add(connection, {counters.WORK_TIMEOUT: sum(late.values()), **(more or {})})


def give_up(connection: Connection, handed: Handed) -> Lapsed:
    """Of a hand-out whose holder says itself that its time is over."""
    return lapse(connection, Overdue([handed.key]), given_up=handed)
