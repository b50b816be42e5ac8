"""A batch of visits: `process` each entity, ask the other stages about what changed, save all of it in one transaction.

S9: what somebody else has changed meanwhile is loaded and processed again, a few times at once and then later; a
`Patch` is applied to the fresh version if nothing that it rests on has changed.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.engine import Connection, Row
from sqlalchemy.orm import Session

from app import doorbell, faults, logs, tracing
from app.alarm import HandBack
from app.claims import Claim
from app.db import autocommit
from app.errors import BadOutcome
from app.jobs.run import LATE_SECONDS
from app.stopwatch import stopwatch
from stages.asker import Limit
from stages.asking import Call
from stages.batch import BLOCKED, HELD, Batch, Server, Unsaved, Write, saving
from stages.calling import Decided, process
from stages.definition import Definition
from stages.ending import Done, Failed, NewState, Offer, Place, complete
from stages.events import hook_queue, hook_task, record
from stages.kind import Kind
from stages.model import AT_ONCE, StageVisit
from stages.outcomes import KEEP, Updated
from stages.state import Stored
from stages.statements import KEPT
from stages.store import Change, Loaded
from stages.whole import whole

log = logging.getLogger(__name__)

#: How often a conflict is tried again at once.
TRIES = 3
#: And then after so many seconds, not all at the same time.
LATER_SECONDS = (0.5, 2.0)
#: What the entry says meanwhile.
CONFLICT = "somebody else changed it each time that it was visited; it is visited again"
#: A chain is shown as its last so many stages.
CHAIN_MOST = 40


@dataclass(slots=True)
class Result:
    """What one visit came to, ready to be saved."""

    loaded: Loaded
    decided: Decided
    done: Done
    offers: list[Offer]
    #: Whether it rests on the version that it saw.
    rests: bool

    @property
    def tells(self) -> bool:
        """S14: entity or state are another than before."""
        state = self.done.state
        kept = state is None or state.type_url == KEPT or (state.type_url is None and not state.version)
        return bool(self.decided.changes) or not kept


class VisitBatch(Batch):
    def __init__(self, server: Server, kind: Kind, place: Place, claim: Claim, definition: Definition) -> None:
        super().__init__(server, kind, place, claim)
        self.definition, self.max_attempts = definition, definition.max_attempts
        self.others = [each for each in self.definitions if each.name != definition.asker]
        self.turns = dict(zip(self.rows, claim.pace, strict=False))
        self.results: dict[str, Result] = {}
        self._call: Call = Limit(definition.time_limit)
        self._traced = tracing.on()
        #: How long the calls took, by how they ended.
        self._took: dict[str, list[float]] = {}

    def work(self) -> None:
        try:
            super().work()
        finally:
            for outcome, seconds in self._took.items():
                stopwatch.worked_each(StageVisit.NOUN, self.definition.task, outcome, seconds)

    def whose(self, entity_id: str) -> str:
        return self.definition.whose(entity_id)

    def _visit(self) -> None:
        failures: list[Failed] = []
        gone: list[str] = []
        try:
            with logs.about(task=self.definition.task):
                while (row := self.next()) is not None:
                    if self._late_for_turn(row):
                        self.holding.put_back(row)
                        break
                    if row.entity_id not in self.loaded:
                        gone.append(row.entity_id)
                    elif (failure := self._make(row)) is not None:
                        failures.append(failure)
        finally:
            # Also where the worker is stopped in the middle: what was made is kept.
            faults.reach("visits.processed")
            self.fail(failures)
            self._forget(gone)
            self._save(list(self.results))
            self.asker.count_failures()

    def _late_for_turn(self, row: Row[Any]) -> bool:
        """Waits for the moment that the rate has given to this call; whether it has passed."""
        if (turn := self.turns.get(row.entity_id)) is None:
            return False
        wait = self.claim.granted + turn - time.monotonic()
        time.sleep(max(0.0, wait))
        return bool(wait < -LATE_SECONDS)

    def _make(self, row: Row[Any]) -> Failed | None:
        """In a block of `logs.about`."""
        logs.note(entity_id=row.entity_id, attempt=row.attempts)
        if row.hops >= self.kind.max_hops:
            return self.failure(row, BadOutcome(self._loop(row)))
        loaded = self.loaded[row.entity_id]
        stored = self._stored(row.entity_id)
        now, begun, ended = self.now(), time.monotonic(), "interrupted"
        try:
            faults.reach("run.before_body")
            with self._span(row) if self._traced else tracing.OFF:
                decided = process(self.definition, loaded, stored, now, self._call)
            ended = "done"
            self.results[row.entity_id] = self._result(row, loaded, stored, decided, now)
        except HandBack:
            self.holding.put_back(row)
            raise
        except Exception as error:  # noqa: BLE001 - S17: it fails this visit, and no other
            ended = "failed"
            return self.failed(row, error)
        finally:
            self._timed(ended, time.monotonic() - begun)
        return None

    def _span(self, row: Row[Any]) -> tracing.Off:
        ids = {"entity_kind": self.kind.name, "entity_id": row.entity_id}
        return tracing.work(StageVisit.NOUN, self.definition.task, row, **ids)

    def _timed(self, outcome: str, seconds: float) -> None:
        self._took.setdefault(outcome, []).append(seconds)

    def _stored(self, entity_id: str) -> Stored | None:
        return self.seen.of(entity_id).get(self.place.stage)

    def _loop(self, row: Row[Any]) -> str:
        return (
            f"stages visit {self.kind.name} {row.entity_id!r} in a circle, {row.hops} times without a pause: "
            f"{row.chain} → {self.place.stage}; let should_process say no to what needs no change, or process "
            "return Untouched(); a timer that is due within a second is no pause: set a later one"
        )

    def _result(self, row: Row[Any], loaded: Loaded, stored: Stored | None, decided: Decided, now: datetime) -> Result:
        hops, chain = row.hops + 1, _longer(row.chain, self.place.stage)
        at_once = decided.timer is not None and decided.timer <= now + AT_ONCE
        state = self._new_state(stored, decided)
        done = Done(loaded.id, decided.timer, hops if at_once else 0, chain if at_once else None, state)
        asks = decided.changes and (self.others or self.asker.strangers)
        offers = self._offers(loaded, decided, hops, chain, now) if asks else []
        sets = decided.patch is not None and bool(decided.patch.set)
        rests = not decided.changes and (sets or decided.state is not KEEP or decided.timer is not None)
        return Result(loaded, decided, done, offers, rests)

    def _new_state(self, stored: Stored | None, decided: Decided) -> NewState | None:
        """S6: also where it stays, the visit rests on what it saw."""
        if self.definition.state is None and (decided.state is KEEP or stored is None):
            return None
        url, value = (KEPT, None) if decided.state is KEEP else decided.state or (None, None)
        return NewState(stored.version if stored else 0, url, value)

    def _offers(self, loaded: Loaded, decided: Decided, hops: int, chain: str, now: datetime) -> list[Offer]:
        """S8: the other stages are asked about it as it will be saved."""
        fields = frozenset(decided.changes)
        outcome = decided.outcome
        entity = self.kind.store.renewed(loaded, outcome.entity if isinstance(outcome, Updated) else loaded.entity)
        at_once = now + AT_ONCE
        return [
            # S11: what comes after a pause begins a chain of its own.
            Offer(loaded.id, name, at, hops, chain) if at <= at_once else Offer(loaded.id, name, at)
            for name, at in self.wanted(self.others, loaded.id, entity, fields, now)
        ]

    def _forget(self, ids: Sequence[str]) -> None:
        """Entities that are no more."""
        if ids:
            self.hand_back(self.save(ids, self._end, autocommit), BLOCKED, HELD)

    def _end(self, executor: Any, ids: Sequence[str], wait: bool) -> set[str]:  # noqa: FBT001
        return complete(executor, self.place, self.pass_key, [Done(each) for each in ids], wait=wait)

    def _save(self, ids: list[str]) -> None:
        for attempt in range(TRIES + 1):
            if not ids:
                return
            plain, changed, rest = self._sorted(ids)
            left = self.save(plain, self._write, autocommit) if plain else []
            if changed and (write := self._writing(changed)) is not None:
                left += self.save(changed, write, saving)
            else:
                rest += changed
            left += self.save(rest, self._write, saving) if rest else []
            self._count(set(ids) - set(left))
            if not left:
                return
            ids = self._again(left, last=attempt == TRIES)

    def _sorted(self, ids: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
        """Those that change neither entity nor anything that rests on it, those that change the entity, the rest."""
        plain: list[str] = []
        changed: list[str] = []
        rest: list[str] = []
        for each in ids:
            result = self.results[each]
            (changed if result.decided.changes else rest if result.rests else plain).append(each)
        return plain, changed, rest

    def _writing(self, ids: Sequence[str]) -> Write | None:
        """By one statement; None: these cannot be saved so."""
        results = [self.results[each] for each in ids]
        changes = [_change(each) for each in results]
        offers = [offer for each in results for offer in each.offers]
        done = [each.done for each in results]
        try:
            made = whole(self.definition, self.place, self.pass_key, changes, done, offers)
        except Exception as error:  # noqa: BLE001 - of one of them: the other way finds out which
            log.debug("%s is not saved by one statement: %s", self._told(ids), error)
            return None
        if made is None:
            return None

        def write(connection: Connection, ids: Sequence[str], wait: bool) -> set[str]:  # noqa: FBT001
            return self._write(connection, ids, wait) if wait else made.save(connection)

        return write

    def _count(self, saved: Iterable[str]) -> None:
        now, results = self.now(), [self.results[each] for each in saved]
        for result in results:
            if result.offers:
                self.offered.update(offer.stage for offer in result.offers if offer.at <= now)
        if self.definition.saved is not None and any(result.tells for result in results):
            doorbell.ring(hook_queue(self.kind.name, self.definition.name), hook_task(self.definition))

    def _write(self, connection: Connection, ids: Sequence[str], wait: bool) -> set[str]:  # noqa: FBT001
        results = [self.results[each] for each in ids]
        saved = self._entities(connection, results, wait=wait)
        ended = complete(
            connection,
            self.place,
            self.pass_key,
            [each.done for each in results if each.loaded.id in saved],
            [offer for each in results if each.loaded.id in saved for offer in each.offers],
            wait=wait,
        )
        if saved != ended and any(self.results[each].decided.changes for each in saved - ended):
            raise Unsaved(ended)
        if told := {each: self.results[each].decided.changes for each in ended if self.results[each].tells}:
            record(connection, self.definition, told)
        return ended

    def _entities(self, connection: Connection, results: Sequence[Result], *, wait: bool) -> set[str]:
        """Those whose version is still the one that the visit saw, saved where they changed."""
        changes = [_change(each) for each in results if each.decided.changes]
        resting = [each.loaded for each in results if each.rests]
        fine = {each.loaded.id for each in results if not each.decided.changes and not each.rests}
        if not changes and not resting:
            return fine
        with Session(connection) as session:
            if changes:
                fine |= self.kind.store.save(session, changes, wait=wait)
            if resting:
                versions = self._versions(session, results, wait=wait)
                fine |= {each.id for each in resting if versions.get(each.id) == each.version}
        return fine

    def _versions(self, session: Session, results: Sequence[Result], *, wait: bool) -> dict[str, int]:
        """Of entities that stay as they are. What is told of one has its turn by the lock of its row."""
        resting = [each for each in results if each.rests]
        store = self.kind.store
        found = store.versions(session, [each.loaded.id for each in resting if not each.tells])
        return found | store.hold(session, [each.loaded.id for each in resting if each.tells], wait=wait)

    def _again(self, ids: Sequence[str], *, last: bool) -> list[str]:
        """S9: what conflicts is made again with what is there now; returns those."""
        before = {each: self.loaded[each] for each in ids}
        blocked = self._reload(ids)
        self.hand_back(blocked, BLOCKED, HELD)
        moved = [each for each in ids if each not in set(blocked)]
        self._forget([each for each in moved if each not in self.loaded])
        moved = [each for each in moved if each in self.loaded]
        if last:
            self._later(moved)
            return []
        failures, later = [], []
        with logs.about(task=self.definition.task):
            for each in moved:
                made = self.results.pop(each)
                if (patched := self._patched(before[each], made)) is not None:
                    self.results[each] = patched
                elif self.claim.pace:
                    # Another call has to wait for its turn.
                    later.append(each)
                elif (failure := self._make(self.rows[each])) is not None:
                    failures.append(failure)
        self.fail(failures)
        self._later(later)
        return [each for each in moved if each in self.results]

    def _later(self, ids: Sequence[str]) -> None:
        self.hand_back(ids, timedelta(seconds=random.uniform(*LATER_SECONDS)), CONFLICT)  # noqa: S311

    def _reload(self, ids: Sequence[str]) -> list[str]:
        """Returns those that are as they were: somebody holds them, but has changed nothing yet."""
        before = {each: (self.loaded.pop(each).version, self.seen.of(each).get(self.place.stage)) for each in ids}
        states = self.seen
        self._load(ids)
        states.states.update({each: self.seen.of(each) for each in ids})
        self.seen = states
        now = {each: (self.loaded[each].version, self.seen.of(each).get(self.place.stage)) for each in self.loaded}
        return [each for each in ids if now.get(each) == before[each]]

    def _patched(self, before: Loaded, made: Result) -> Result | None:
        """A patch that rests on nothing that has changed holds for the fresh version as well."""
        patch, fresh, store = made.decided.patch, self.loaded[before.id], self.kind.store
        stored = self._stored(before.id)
        if patch is None or store.read(before, patch.reads) != store.read(fresh, patch.reads):
            return None
        if made.done.state is not None and made.done.state.version != (stored.version if stored else 0):
            return None
        decided = replace(made.decided, changes=store.patched(fresh, patch.set))
        return self._result(self.rows[before.id], fresh, stored, decided, self.now())


def _change(result: Result) -> Change:
    return Change(result.loaded.id, result.loaded.version, result.decided.changes)


def _longer(chain: str | None, stage: str) -> str:
    if chain is None:
        return stage
    return " → ".join([*chain.split(" → "), stage][-CHAIN_MOST:])
