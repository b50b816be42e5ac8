"""The catalogue held against the data: each entry in a query, and each query within a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from app.claims import Executor
from app.db import transaction
from recovery.invariants.catalogue import ALL
from recovery.invariants.entry import Invariant, Key

#: More are not counted.
MOST = 1000
QUERY_CANCELED = "57014"
#: In place of the verdict, of what was not looked at.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Violation:
    """That something does not hold, and where: `17/3`, `offer 12 expire`, the number of a job or run."""

    invariant: str
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Looked:
    invariant: Invariant
    keys: tuple[Key, ...] = ()
    #: There are more than were counted.
    more: bool = False
    #: Why it could not be looked at.
    failed: str | None = None

    @property
    def verdict(self) -> str:
        return UNKNOWN if self.failed else self.invariant.verdict.value

    @property
    def examples(self) -> tuple[str, ...]:
        return tuple(self.invariant.subject(key) for key in self.keys[:5])


def check(executor: Executor, examples: int = 5) -> list[Violation]:
    """What is damaged. Where nothing was broken by hand, there is none, whoever died when."""
    wrong = ((each, each.look(executor, examples)) for each in ALL if each.wrong)
    return [Violation(each.name, tuple(each.subject(key) for key in keys)) for each, keys in wrong if keys]


def look(invariant: Invariant, limit: int = MOST, within: timedelta | None = None) -> Looked:
    """In a transaction of its own."""
    try:
        with transaction() as session:
            if within is not None:
                milliseconds = str(max(1, int(within.total_seconds() * 1000)))
                session.execute(sa.select(sa.func.set_config("statement_timeout", milliseconds, True)))
            keys = invariant.look(session, limit + 1)
    except OperationalError as error:
        if getattr(error.orig, "pgcode", None) != QUERY_CANCELED:
            raise
        return Looked(invariant, failed=f"not finished within {_words(within)}")
    return Looked(invariant, tuple(sorted(keys[:limit])), more=len(keys) > limit)


def _words(span: timedelta | None) -> str:
    if span is None:
        return "its time"
    seconds = span.total_seconds()
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"


def chosen(domains: Iterable[str]) -> list[Invariant]:
    """In the order of the catalogue; of no domain in particular: of all."""
    wanted = set(domains)
    return [each for each in ALL if not wanted or each.domain in wanted]
