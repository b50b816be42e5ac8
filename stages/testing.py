"""For tests of stages: visits without workers and without a database.

    seen = visit(Expire, offer, now=noon)
    assert seen.changed == {"status"} and seen.timer is None

    world = World(now=noon)
    world.add(offer)
    world.advance("2d")                       # every stage that wanted the offer, in the order of time
    assert [ran.stage for ran in world.visits] == ["expire", "notify"]

A test hears of more than production does: of an entity that was changed but not returned, and of what `should_process`
raises or changes.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from app.clock import duration
from app.errors import BadOutcome, BadRequest
from stages.asking import ask, direct, time_of
from stages.calling import Decided, process
from stages.definition import SYSTEM, Definition
from stages.forms import State
from stages.kind import Kind
from stages.outcomes import KEEP, Outcome, Untouched, Updated
from stages.present import called_at
from stages.registration import asked_of, declared
from stages.state import Stored, pack, unpack
from stages.store import Loaded
from stages.watched import Watched, kind_of, kinds

#: Kind, entity, stage.
_Key = tuple[str, str, str]


@dataclass(frozen=True)
class Visited:
    outcome: Outcome
    #: As it would be saved.
    entity: Any
    #: Attributes.
    changed: frozenset[str]
    #: As it is after the visit.
    state: State | None
    timer: datetime | None
    #: What `should_process` answered before.
    wanted: Any


def visit(stage_class: type, entity: Any, state: State | None = None, now: datetime | None = None) -> Visited:
    """Asks the stage, then calls it, whatever it answered. What either raises is raised; an answer that counts as a
    failure is a `BadOutcome`."""
    definition = _definition(stage_class)
    kind, now = definition.kind, _checked_now(now)
    loaded = kind.store.loaded(entity)
    stored = None if state is None else Stored(*pack(definition, loaded.id, state), version=1)
    wanted = called_at(now, direct, definition.should_process, entity, unpack(definition, stored))
    if wanted is not True and wanted is not False:
        time_of(wanted, now)
    _refuse_changes(kind, loaded, f"stage {definition.task}: should_process")
    decided = _process(definition, loaded, stored, now)
    _bring(kind, loaded, decided)
    after = _state_after(stored, decided)
    changed = _attributes(kind, entity, decided.changes)
    return Visited(decided.outcome, loaded.entity, changed, unpack(definition, after), decided.timer, wanted)


@dataclass(frozen=True)
class Ran:
    """A visit that a world has made."""

    stage: str
    entity_id: str
    at: datetime
    outcome: Outcome
    #: Attributes.
    changed: frozenset[str]


@dataclass
class _Row:
    kind: Kind
    id: str
    entity: Any
    #: By stage.
    states: dict[str, Stored] = field(default_factory=dict)


@dataclass
class _Entry:
    due: datetime
    #: The stages whose changes have led here.
    chain: tuple[str, ...] = ()
    #: For the system stage: what has changed; None: everything.
    fields: frozenset[str] | None = None


class World:
    """Entities, the queues of their stages, and a clock that stands still until it is moved.

    Every change enqueues the system stage, which asks the others; a visit that changes the entity asks all but itself;
    who is enqueued twice is visited at the earlier time; a timer that is not set again is gone. One visit at a time,
    the earliest first.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self.now = _checked_now(now)
        self.visits: list[Ran] = []
        #: Of `should_process`, each with its stage; the entity was visited all the same.
        self.failures: list[str] = []
        self._rows: dict[tuple[str, str], _Row] = {}
        self._queue: dict[_Key, _Entry] = {}
        #: Of the queue, by time; an entry may have gone meanwhile, or come earlier.
        self._order: list[tuple[datetime, int, _Key]] = []
        self._places = itertools.count()

    def add(self, entity: Any) -> None:
        kind = _kind_for(entity)
        row = _Row(kind, kind.store.loaded(entity).id, entity)
        if (kind.name, row.id) in self._rows:
            raise BadRequest(f"{kind.name} {row.id!r} is in this world already: use change")
        self._rows[kind.name, row.id] = row
        self._offer(row, SYSTEM, self.now)

    def change(self, entity: Any, **attributes: Any) -> None:
        """As another program would do it."""
        row = self._row(entity)
        store = row.kind.store
        store.fields(attributes)
        changed = store.patched(store.loaded(row.entity), attributes)
        self._offer(row, SYSTEM, self.now, fields=frozenset(changed))

    def run(self) -> list[Ran]:
        """Everything that is due, until nothing is; what ran."""
        begin = len(self.visits)
        while (key := self._next(self.now)) is not None:
            row = self._rows[key[:2]]
            if key[2] == SYSTEM:
                self._ask(row, _local(row.kind.name), self._queue.pop(key))
            else:
                self._visit(row, declared[row.kind.name, key[2]], self._queue[key])
        return self.visits[begin:]

    def advance(self, span: str | float | timedelta) -> list[Ran]:
        """Lets so much time pass, and runs what becomes due when it does; what ran."""
        begin, end = len(self.visits), self.now + duration(span)
        while (key := self._next(end)) is not None:
            self.now = max(self.now, self._queue[key].due)
            self.run()
        self.now = end
        return self.visits[begin:]

    def check(self, entity: Any) -> dict[str, datetime]:
        """When the stages are to visit it, by their names."""
        row = self._row(entity)
        found = {key[2]: entry.due for key, entry in self._queue.items() if key[:2] == (row.kind.name, row.id)}
        return dict(sorted(found.items(), key=lambda each: (each[1], each[0])))

    def state_of(self, entity: Any, stage_class: type) -> State | None:
        definition = _definition(stage_class)
        return unpack(definition, self._row(entity).states.get(definition.name))

    def _row(self, entity: Any) -> _Row:
        kind = _kind_for(entity)
        found = self._rows.get((kind.name, kind.store.loaded(entity).id))
        if found is None or found.entity is not entity:
            raise BadRequest(f"{entity!r:.100} is not in this world: add it first")
        return found

    def _next(self, until: datetime) -> _Key | None:
        """The earliest; of those due at the same time, the one that was enqueued first."""
        while self._order and self._order[0][0] <= until:
            due, _, key = self._order[0]
            entry = self._queue.get(key)
            if entry is not None and entry.due == due:
                return key
            heapq.heappop(self._order)
        return None

    def _offer(
        self,
        row: _Row,
        stage: str,
        due: datetime,
        chain: tuple[str, ...] = (),
        fields: frozenset[str] | None = None,
    ) -> None:
        if len(chain) > row.kind.max_hops:
            raise BadRequest(
                f"{row.kind.name} {row.id!r} does not come to rest: more than {row.kind.max_hops} visits in one chain, "
                f"and so on: {' → '.join(_cycle(chain, stage))}"
            )
        key = (row.kind.name, row.id, stage)
        there = self._queue.get(key)
        if there is None or due < there.due:
            heapq.heappush(self._order, (due, next(self._places), key))
        if there is None:
            self._queue[key] = _Entry(due, chain, fields)
            return
        there.due = min(there.due, due)
        there.chain = min(there.chain, chain, key=len)
        there.fields = None if there.fields is None or fields is None else there.fields | fields

    def _ask(self, row: _Row, definitions: Iterable[Definition], entry: _Entry) -> None:
        loaded = row.kind.store.loaded(row.entity)
        for wish in ask(definitions, row.entity, row.states, entry.fields, self.now):
            if wish.failure is not None:
                self.failures.append(f"{wish.stage}: {wish.failure}")
            # What comes after a pause begins a chain of its own.
            self._offer(row, wish.stage, wish.at, () if wish.at > self.now else entry.chain)
        _refuse_changes(row.kind, loaded, "a should_process")

    def _visit(self, row: _Row, definition: Definition, entry: _Entry) -> None:
        kind, name = row.kind, definition.name
        loaded, stored = kind.store.loaded(row.entity), row.states.get(name)
        decided = _process(definition, loaded, stored, self.now)
        _bring(kind, loaded, decided)
        del self._queue[kind.name, row.id, name]
        changed = _attributes(kind, row.entity, decided.changes)
        self.visits.append(Ran(name, row.id, self.now, decided.outcome, changed))
        after = _state_after(stored, decided)
        if after is None:
            row.states.pop(name, None)
        else:
            row.states[name] = after
        chain = (*entry.chain, name)
        if decided.timer is not None:
            # One that is due at once belongs to this chain, or there might be no end of it.
            self._offer(row, name, decided.timer, () if decided.timer > self.now else chain)
        if decided.changes:
            others = [each for each in _local(kind.name) if each.name != name]
            self._ask(row, others, _Entry(self.now, chain, frozenset(decided.changes)))


def _checked_now(now: Any) -> datetime:
    if now is None:
        return datetime.now(UTC)
    if not isinstance(now, datetime) or now.utcoffset() is None:
        raise BadRequest(
            f"now={now!r:.100} must be a datetime with a time zone, such as datetime(2026, 7, 1, tzinfo=UTC)"
        )
    return now.astimezone(UTC)


def _cycle(chain: tuple[str, ...], stage: str) -> tuple[str, ...]:
    """From where the stage stood last; all of it, where it comes for the first time."""
    begin = max((place for place, name in enumerate(chain) if name == stage), default=0)
    return (*chain[begin:], stage)


def _definition(stage_class: type) -> Definition:
    found = [each for each in declared.values() if type(each.stage) is stage_class]
    if len(found) != 1:
        what = "a stage of several kinds" if found else "no stage: put @stage(…) above it"
        raise BadRequest(f"{getattr(stage_class, '__qualname__', stage_class)} is {what}")
    return found[0]


def _local(kind: str) -> list[Definition]:
    """Without those that live in other services, which a test does not call."""
    return [each for each in asked_of(kind) if each.remote is None]


def _kind_for(entity: Any) -> Kind:
    if isinstance(entity, Watched):
        mapper = sa.inspect(type(entity), raiseerr=False)
        return kind_of(type(entity) if mapper is None else mapper.base_mapper.class_)
    for kind in kinds.values():
        try:
            kind.store.loaded(entity)
        except BadRequest:
            continue
        return kind
    raise BadRequest(f"{entity!r:.100} is an entity of no kind that has a stage")


def _process(definition: Definition, loaded: Loaded, stored: Stored | None, now: datetime) -> Decided:
    decided = process(definition, loaded, stored, now)
    if not isinstance(decided.outcome, Updated) or decided.outcome.entity is not loaded.entity:
        word = "return Updated(entity)" if isinstance(decided.outcome, Untouched) else "put it into what is returned"
        whose = f"{definition.whose(loaded.id)}: process"
        _refuse_changes(definition.kind, loaded, whose, but=decided, instead=word)
    return decided


def _refuse_changes(
    kind: Kind,
    loaded: Loaded,
    whose: str,
    but: Decided | None = None,
    instead: str = "change it in process only",
) -> None:
    """What nothing would save."""
    said = {} if but is None or but.patch is None else but.changes
    unsaid = kind.store.changes(loaded, loaded.entity).keys() - said.keys()
    if unsaid:
        names = ", ".join(sorted(_attributes(kind, loaded.entity, unsaid)))
        raise BadOutcome(f"{whose} has changed {names} of the entity, which is not saved: {instead}")


def _bring(kind: Kind, loaded: Loaded, decided: Decided) -> None:
    """What was returned as an entity of its own into the one that there is."""
    outcome = decided.outcome
    if isinstance(outcome, Updated) and outcome.entity is not loaded.entity:
        names = _attributes(kind, loaded.entity, decided.changes)
        kind.store.patched(loaded, {name: getattr(outcome.entity, name) for name in names})


def _state_after(before: Stored | None, decided: Decided) -> Stored | None:
    if decided.state is KEEP:
        return before
    version = 1 if before is None else before.version + 1
    return None if decided.state is None else Stored(*decided.state, version)


def _attributes(kind: Kind, entity: Any, fields: Iterable[str]) -> frozenset[str]:
    """The attributes behind fields: a store tells the way there only."""
    wanted, found = frozenset(fields), []
    for name in dir(entity) if wanted else ():
        if not name.startswith("__"):
            try:
                found += [name] if kind.store.fields([name]) <= wanted else []
            except BadRequest:
                continue
    return frozenset(found)
