"""A page of a walk: the next entities of a range, and which stages want them (S16).

An entity that cannot be read is passed over and counted; where the database refuses to read any, its error is raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from traceback import format_exception_only

from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.orm import Session

from app import faults
from app.alarm import HandBack
from app.db import autocommit
from app.errors import DatabaseError
from stages.asker import Asker, Wanted
from stages.definition import Definition
from stages.kind import Kind
from stages.seen import Seen, see
from stages.store import Loaded

log = logging.getLogger(__name__)

#: A page that takes longer is cut short.
MOST_SECONDS = 1.0


@dataclass(frozen=True)
class Range:
    """`after < id <= until`."""

    after: str | None
    until: str | None


@dataclass
class Page:
    #: The last entity that it is done with; None: it is done with none.
    last: str | None = None
    #: There are no more in the range.
    ends: bool = False
    #: The worker is to hand back what it does.
    stopped: bool = False
    asked: int = 0
    failed: int = 0
    error: str | None = None
    #: Entity, stage and time.
    offers: list[tuple[str, str, datetime]] = field(default_factory=list)

    def pass_over(self, entity_id: str, error: BaseException) -> None:
        self.failed += 1
        self.error = f"{entity_id!r} cannot be read: {told(error)}"


def told(error: BaseException) -> str:
    return "".join(format_exception_only(error)).strip()


class Reader:
    """`everybody`: stages that only another release knows are taken to want everything (S4)."""

    def __init__(
        self,
        kind: Kind,
        asker: Asker,
        definitions: Sequence[Definition],
        *,
        everybody: bool,
        now: Callable[[], datetime],
        stopping: Callable[[], bool],
    ) -> None:
        self._kind, self._asker, self._definitions, self._everybody = kind, asker, definitions, everybody
        self._now, self._stopping = now, stopping

    def read(self, within: Range, limit: int, unasked: str | None = None) -> Page:
        """At most `limit` entities. `unasked`: they are put into the queues for this reason."""
        begun = time.monotonic()
        page = Page()
        found = self._load(within, limit, page)
        seen = self._see([each for each, loaded in found if loaded is not None])
        faults.reach("visits.loaded")
        for entity_id, loaded in found:
            if self._stopping() or time.monotonic() - begun > MOST_SECONDS:
                page.ends = False
                break
            if loaded is not None:
                try:
                    wanted = self._unasked(entity_id, unasked) if unasked else self._asked(loaded, seen)
                except HandBack:
                    page.ends, page.stopped = False, True
                    break
                page.offers += [(entity_id, stage, at) for stage, at in wanted]
                page.asked += 1
            page.last = entity_id
        faults.reach("visits.processed")
        return page

    def _load(self, within: Range, limit: int, page: Page) -> list[tuple[str, Loaded | None]]:
        try:
            with autocommit() as connection, Session(connection) as session:
                found = self._kind.store.page(session, within.after, within.until, limit)
        except Exception as error:
            if not _of_one(error):
                raise
            return self._load_singly(within, limit, page)
        page.ends = len(found) < limit
        return [(each.id, each) for each in found]

    def _load_singly(self, within: Range, limit: int, page: Page) -> list[tuple[str, Loaded | None]]:
        """One of them cannot be read; it must not cost the others."""
        with autocommit() as connection, Session(connection) as session:
            ids = self._kind.store.ids(session, within.after, within.until, limit)
        page.ends = not ids
        return [(each, self._load_one(each, page)) for each in ids]

    def _load_one(self, entity_id: str, page: Page) -> Loaded | None:
        try:
            with autocommit() as connection, Session(connection) as session:
                return self._kind.store.load(session, [entity_id]).get(entity_id)
        except Exception as error:
            if not _of_one(error):
                raise
            log.warning("a walk passes over %s %r: %s", self._kind.name, entity_id, told(error))
            page.pass_over(entity_id, error)
            return None

    def _see(self, ids: Sequence[str]) -> Seen:
        if not ids:
            return Seen()
        with autocommit() as connection:
            seen = see(connection, self._kind.name, ids)
        if self._everybody:
            self._asker.strangers = seen.strangers([each.name for each in self._definitions])
        return seen

    def _asked(self, loaded: Loaded, seen: Seen) -> Wanted:
        return self._asker.wanted(self._definitions, loaded.entity, seen.of(loaded.id), None, self._now())

    def _unasked(self, entity_id: str, why: str) -> Wanted:
        log.error("%s %r goes to its stages unasked: %s", self._kind.name, entity_id, why)
        names = [each.name for each in self._definitions]
        for name in names:
            self._asker.unanswered(name, why)
        now = self._now()
        return self._asker.spread([(name, now) for name in (*names, *self._asker.strangers)])


def _of_one(error: Exception) -> bool:
    """Whether it is the error of an entity: what its model, or the driver, makes of a value."""
    return isinstance(error, DataError) or not isinstance(error, DBAPIError | DatabaseError)
