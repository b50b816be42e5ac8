"""Where the entities of a kind are kept: what a storage must be able to do (S20).

`stages.sql_store` does it for SQLAlchemy models. An id is its text everywhere; a *field* is the name of a column in
the database, an *attribute* its name in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from stages.identity import Codec


@dataclass(slots=True)
class Loaded:
    id: str
    entity: Any
    version: int
    #: The store's own.
    memo: Any


@dataclass(slots=True)
class Change:
    id: str
    #: The version that it rests on.
    version: int
    #: By field.
    values: dict[str, Any]


class Store(Protocol):
    codec: Codec

    def fields(self, names: Iterable[str]) -> frozenset[str]:
        """Of attributes. `BadRequest` for one that there is not, of the primary key, or the version."""
        ...

    def load(self, session: Session, ids: Sequence[str]) -> dict[str, Loaded]:
        """Those that exist, in one query."""
        ...

    def loaded(self, entity: Any) -> Loaded:
        """Of an entity that lies in memory."""
        ...

    def changes(self, loaded: Loaded, entity: Any) -> dict[str, Any]:
        """What differs from what was loaded, by field. `BadOutcome` for what is no entity of the kind, or has another
        id or another version."""
        ...

    def patched(self, loaded: Loaded, values: Mapping[str, Any]) -> dict[str, Any]:
        """Sets the attributes of `loaded.entity`, and returns what that changes, by field. `BadOutcome` for one that
        there is not, of the primary key, or the version."""
        ...

    def renewed(self, loaded: Loaded, entity: Any) -> Any:
        """`loaded.entity` as it will be once these changes of it are saved: with its next version."""
        ...

    def read(self, loaded: Loaded, names: Iterable[str]) -> dict[str, Any]:
        """The values of these attributes as they were loaded."""
        ...

    def save(self, session: Session, changes: Sequence[Change], *, wait: bool = False) -> set[str]:
        """The ids that were saved: those whose version is still that of the change, and whose row nobody holds just
        now (`wait`: it is waited for). Raises their versions by one, and sets `tidemill.saving` for this transaction:
        the database trigger then leaves it to the caller to enqueue the system stage."""
        ...

    def versions(self, session: Session, ids: Sequence[str]) -> dict[str, int]:
        """Of those that exist."""
        ...

    def hold(self, session: Session, ids: Sequence[str], *, wait: bool = False) -> dict[str, int]:
        """Locks those that nobody holds just now (`wait`: it is waited for), in the order of their keys, as a save of
        them would; their versions."""
        ...

    def exporting(self) -> sa.SelectBase:
        """`place, version, entity`: of the entities that `named` names, the place among these, counted from 1, and the
        entity as JSON, by field, as it is in this transaction."""
        ...

    def named(self, ids: Sequence[str]) -> dict[str, Any]:
        """The parameters of `exporting`; each begins with `p_key`."""
        ...

    def entity(self, session: Session, document: str) -> Any:
        """Made of such JSON, in nobody's session. `BadRequest` for what cannot be one."""
        ...

    def entities(self, session: Session, documents: Sequence[str]) -> list[Any]:
        """Made of such JSON, in the same order, by one query. `BadRequest` if one of them cannot be."""
        ...

    def attributes(self) -> Mapping[str, str]:
        """By field, the attribute of each column that a stage may write."""
        ...

    def split(self, session: Session, parts: int) -> list[str]:
        """Up to `parts - 1` ids that cut all entities into about equal ranges, in the store's order."""
        ...

    def page(self, session: Session, after: str | None, until: str | None, limit: int) -> list[Loaded]:
        """`after < id <= until`, in the store's order."""
        ...

    def ids(self, session: Session, after: str | None, until: str | None, limit: int) -> list[str]:
        """Of the same, for when one of them cannot be loaded. What can be no id is left out; none: the range ends."""
        ...

    def count(self, session: Session) -> int:
        """About how many there are."""
        ...


class Writing(Protocol):
    """One form of a save, as two parts of a statement in between which visits end."""

    @property
    def name(self) -> str:
        """Of no other form."""
        ...

    def held(self, *carried: tuple[str, Any]) -> sa.CTE:
        """The rows that can be saved now, locked in the order of their keys, with what is given beside (a name and a
        type each, a parameter `p_…`)."""
        ...

    def written(self, rows: sa.CTE) -> sa.CTE:
        """Saves those of the held ones; with their new `version`, and `entity` as JSON by field."""
        ...


@runtime_checkable
class Together(Protocol):
    """What a store may do as well: save within the one statement that ends the visits (`stages.whole`)."""

    def writing(self, changes: Sequence[Change]) -> tuple[Writing, dict[str, Any]] | None:
        """With its parameters; None where these have to be saved by themselves."""
        ...
