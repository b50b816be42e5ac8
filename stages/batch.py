"""What all batches of visits have in common: claimed together, loaded together, and ended one by one if need be."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from functools import partial
from traceback import format_exception, format_exception_only
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from app import faults, logs
from app.alarm import ClaimIsLost, HandBack, alarm
from app.claims import Claim, PassKey
from app.claims import keeper as keeping
from app.claims.keeper import Holding
from app.claims.saving import save
from app.db import autocommit, engine, transaction
from app.errors import BadOutcome, ClaimLost, DatabaseError, Unavailable
from stages import ending
from stages.asker import Asker, Wanted
from stages.definition import Definition
from stages.ending import Failed, Place
from stages.kind import Kind
from stages.model import ATTEMPTS, STATE, StageVisit
from stages.registration import asked_of
from stages.seen import Seen, see
from stages.statements import LOCK_TIMEOUT
from stages.store import Loaded

log = logging.getLogger(__name__)

#: How long what somebody else has locked is waited for; then it goes back.
PATIENCE_SECONDS = 2.0
BLOCKED = timedelta(seconds=1)
HELD = "somebody's open transaction holds it; it is visited again"
#: lock_not_available, deadlock_detected, serialization_failure: somebody else was in the way.
IN_THE_WAY = ("55P03", "40P01", "40001")


class Server(Protocol):
    @property
    def lease(self) -> timedelta: ...
    @property
    def stopping(self) -> Callable[[], bool]: ...


Write = Callable[[Any, Sequence[str], bool], set[str]]
Within = Callable[[], AbstractContextManager[Any]]


@contextmanager
def saving() -> Iterator[Connection]:
    """A transaction for statements that are prepared."""
    with engine().begin() as connection:
        yield connection


@contextmanager
def _patiently() -> Iterator[Connection]:
    with saving() as connection:
        connection.execute(sa.select(sa.func.set_config("lock_timeout", LOCK_TIMEOUT, True)))
        yield connection


def _in_the_way(error: Exception) -> bool:
    """Somebody else was; the other way round it would have been well."""
    said = getattr(error, "orig", None)
    constraint = getattr(getattr(said, "diag", None), "constraint_name", None)
    return getattr(said, "pgcode", None) in IN_THE_WAY or constraint == STATE.primary_key.name


def _give_back(place: Place, pass_key: PassKey, tx: Any, rows: Sequence[Row[Any]]) -> None:
    ending.give_back(tx, place, pass_key, [row.entity_id for row in rows])
    faults.reach("give_back.before_commit")


class Unsaved(Exception):
    """Raised to roll back; only these can be saved together."""

    def __init__(self, together: set[str]) -> None:
        super().__init__()
        self.together = together


class Batch:
    """One claim, from its first load to its last ending."""

    def __init__(self, server: Server, kind: Kind, place: Place, claim: Claim) -> None:
        self.server, self.kind, self.place, self.claim = server, kind, place, claim
        self.pass_key = claim.pass_key
        self.begun = time.monotonic()
        self._claimed_at: datetime = claim.rows[0].claimed_at
        extend = partial(ending.extend, guarded=place.guarded)
        # No method of this object: a batch that refers to itself would stay, with all that it has loaded, until the
        # garbage is collected.
        self.holding = Holding(StageVisit, claim, server.lease, partial(_give_back, place, claim.pass_key), extend)
        self.max_attempts = ATTEMPTS
        self.rows: dict[str, Row[Any]] = {row.entity_id: row for row in claim.rows}
        self.loaded: dict[str, Loaded] = {}
        self.seen = Seen()
        #: How many visits of which stages were asked for, and may be made now.
        self.offered: Counter[str] = Counter()
        self.definitions = asked_of(kind.name)
        self.asker = Asker(kind)

    def work(self) -> None:
        with logs.about(kind=self.place.kind, stage=self.place.stage, queue=self.claim.rows[0].queue):
            self._work()

    def _work(self) -> None:
        self.holding.prepare()
        with keeping.keeper.keeping(self.holding), alarm.patrol():
            try:
                self._load(list(self.rows))
                faults.reach("visits.loaded")
                self.holding.begin()
                self._visit()
            except HandBack:
                log.info("the worker was stopped: visits of %s go back", self.claim.rows[0].queue)
                self._hand_back_all()
            except ClaimIsLost as lost:
                log.warning("%s: %s", self.claim.rows[0].queue, lost)
                if self.holding.lost:
                    # Perhaps of one only, which was deleted; the others must not wait for the end of the lease.
                    self._hand_back_all()
            finally:
                self.holding.let_go()

    def _visit(self) -> None:
        raise NotImplementedError

    def now(self) -> datetime:
        """By the clock of the database."""
        return self._claimed_at + timedelta(seconds=time.monotonic() - self.begun)

    def next(self) -> Row[Any] | None:
        """The next visit that is still ours to begin."""
        row = self.holding.next()
        if row is not None and self.server.stopping():
            self.holding.put_back(row)
            return None
        return row

    def _load(self, ids: Sequence[str]) -> None:
        """Entities and states, with one query each."""
        with autocommit() as connection:
            with Session(connection) as session:
                try:
                    self.loaded |= self.kind.store.load(session, ids)
                except (Unavailable, DatabaseError):
                    raise
                except Exception:  # noqa: BLE001 - whatever its model makes of it
                    # One of them cannot be read; it must not cost the others.
                    self._load_singly(ids)
            self.seen = see(connection, self.kind.name, ids)
        self.asker.strangers = self.seen.strangers([each.name for each in self.definitions])

    def _load_singly(self, ids: Sequence[str]) -> None:
        failures = []
        for each in ids:
            with autocommit() as connection, Session(connection) as session:
                try:
                    self.loaded |= self.kind.store.load(session, [each])
                except (Unavailable, DatabaseError):
                    raise
                except Exception as error:  # noqa: BLE001 - whatever its model makes of it
                    failures.append(self.failed(self.rows[each], error))
        self.fail(failures)

    def wanted(
        self,
        definitions: Iterable[Definition],
        entity_id: str,
        entity: Any,
        fields: frozenset[str] | None,
        now: datetime,
    ) -> Wanted:
        with logs.about(entity_id=entity_id):
            return self.asker.wanted(definitions, entity, self.seen.of(entity_id), fields, now)

    def failed(self, row: Row[Any], error: BaseException) -> Failed:
        """S17: tried again with backoff, and parked in the end."""
        return self.failure(row, error, None if row.attempts >= self.max_attempts else ending.backoff(row.attempts))

    def failure(self, row: Row[Any], error: BaseException, again: timedelta | None = None) -> Failed:
        seen = self.loaded.get(row.entity_id)
        state = self.seen.of(row.entity_id).get(self.place.stage)
        return Failed(
            row.entity_id,
            "".join(format_exception_only(error)).strip(),
            "".join(format_exception(error)),
            seen.version if seen else None,
            state.version if state else None,
            again,
        )

    def fail(self, failures: Sequence[Failed]) -> None:
        if not failures:
            return
        rows = [self.rows[each.id] for each in failures]
        self.holding.ended(rows)

        def write(session: Session) -> bool:
            return len(ending.failed(session, self.place, self.pass_key, failures)) == len(failures)

        save(self.holding, self._told([each.id for each in failures]), write)
        self._say(failures)

    def _say(self, failures: Sequence[Failed]) -> None:
        """A line for each way of ending, not for each entity."""
        for level, what in (logging.WARNING, "tried again"), (logging.ERROR, "parked"):
            some = [each for each in failures if (each.again is None) is (level == logging.ERROR)]
            if some:
                first, more = some[0], f" (and {len(some) - 1} more)" if some[1:] else ""
                log.log(level, "%s is %s: %s%s", self._told([first.id]), what, first.error, more)

    def save(self, ids: Sequence[str], write: Write, within: Within) -> list[str]:
        """Ends visits: together as far as that goes, the rest one by one; returns those that somebody holds on to, or
        that rest on what is no more.

        `write(executor, ids, wait)` ends them, says which have ended, and raises `Unsaved` where only some can be."""
        left = self._together(list(ids), write, within)
        end = time.monotonic() + PATIENCE_SECONDS
        still: list[str] = []
        for each in left:
            patient = time.monotonic() < end and not self.holding.lost
            still += self._try([each], write, _patiently, wait=True) if patient else [each]
        return still

    def _together(self, ids: list[str], write: Write, within: Within) -> list[str]:
        try:
            return self._try(ids, write, within, wait=False)
        except Unsaved as unsaved:
            fewer = unsaved.together
        left = self._together([each for each in ids if each in fewer], write, within) if fewer else []
        return left + [each for each in ids if each not in fewer]

    def _try(self, ids: list[str], write: Write, within: Within, *, wait: bool) -> list[str]:
        done: set[str] = set()
        refused: list[Exception] = []

        @contextmanager
        def refusable() -> Iterator[None]:
            try:
                yield
            except (Unsaved, ClaimLost, DatabaseError):
                raise
            except Exception as error:
                if len(ids) == 1 and not _in_the_way(error):
                    refused.append(error)
                # Of several, nobody knows which one it was.
                raise Unsaved(set()) from error

        def attempt(executor: Any) -> bool:
            done.clear()
            with refusable():
                done.update(write(executor, ids, wait))
            return True

        @contextmanager
        def committed() -> Iterator[Any]:
            """Some constraints are checked at the end only."""
            with refusable(), within() as executor:
                yield executor

        try:
            if not save(self.holding, self._told(ids), attempt, committed):
                done.update(ids)
        except Unsaved:
            if refused:
                # A constraint of its table, a value that a column cannot hold, or an error of the store.
                self.fail([self.failed(self.rows[ids[0]], self._refusal(ids[0], refused[0]))])
                return []
            if not wait:
                raise
        self.holding.ended([self.rows[each] for each in done])
        return [each for each in ids if each not in done]

    def whose(self, entity_id: str) -> str:
        return f"stage {self.place.stage} of {self.kind.name} {entity_id!r}"

    def _refusal(self, entity_id: str, error: Exception) -> Exception:
        if not isinstance(error, DBAPIError):
            return error
        said = str(error.orig).strip().partition("\n")[0]
        found = BadOutcome(f"{self.whose(entity_id)}: the database refuses what is to be saved: {said}")
        found.__cause__ = error
        return found

    def hand_back(self, ids: Sequence[str], delay: timedelta, why: str | None = None, *, alone: bool = False) -> None:
        """To be tried again after a moment, at no charge, and one by one where that is wanted (`alone`); what cannot be
        written now is found by the sweep."""
        if not ids:
            return
        rows = [self.rows[each] for each in ids]
        self.holding.ended(rows)
        back = [Failed(each, why, again=delay, charged=False, alone=alone) for each in ids]
        try:
            with transaction() as session:
                ending.failed(session, self.place, self.pass_key, back)
        except (SQLAlchemyError, DatabaseError) as error:
            log.warning("could not hand back %s: %s", self._told(ids), error)

    def _hand_back_all(self) -> None:
        """Whatever has not ended."""
        self.hand_back([key[1] for key in sorted(self.holding.held)], timedelta(0))

    def _told(self, ids: Sequence[str]) -> str:
        return f"{self.place.kind} {', '.join(sorted(ids)[:10])} in stage {self.place.stage}"
